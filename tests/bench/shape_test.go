package main

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sickbay-dev/sickbay/tests/bench/apiserver"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// stored is an object as it goes over the wire.
type stored interface {
	metav1.Object
	Marshal() ([]byte, error)
}

// compareWithGenerated wants the objects of a generated fleet to have the fields of
// those that a real API server has of a fleet of the same make, and about their size:
// else what is measured with them would say nothing of a real one.
func compareWithGenerated(t *testing.T, st *stack.Stack) {
	t.Helper()
	server, err := apiserver.Start(apiserver.Fleet{Nodes: 1, DevicesPerNode: smallSizes().perNode})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := server.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	want := fetch(t, kubernetes.NewForConfigOrDie(st.RESTConfig()))
	for what, got := range fetch(t, kubernetes.NewForConfigOrDie(config)) {
		real, generated := fieldsIn(t, want[what]), fieldsIn(t, got)
		for _, field := range slices.Sorted(maps.Keys(real)) {
			if !generated[field] {
				t.Errorf("a generated %s lacks %s", what, field)
			}
		}
		for _, field := range slices.Sorted(maps.Keys(generated)) {
			if !real[field] {
				t.Errorf("a generated %s has %s, and a real one hasn't", what, field)
			}
		}
		a, b := encodedSize(t, want[what]), encodedSize(t, got)
		if ratio := float64(b) / float64(a); ratio < 0.75 || ratio > 1.25 {
			t.Errorf("a generated %s has %d bytes, a real one %d", what, b, a)
		}
	}
}

// fetch reads everything that the first node has to do with.
func fetch(t *testing.T, client kubernetes.Interface) map[string]stored {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), apiserver.NodeName(0), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), apiserver.PodName(0), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := client.ResourceV1().ResourceClaims("default").Get(t.Context(), apiserver.PodName(0), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + apiserver.NodeName(0),
	})
	if err != nil || len(slices.Items) != 1 {
		t.Fatalf("slices of the first node: %v, error %v", slices, err)
	}
	return map[string]stored{"Node": node, "Pod": pod, "ResourceClaim": claim, "ResourceSlice": &slices.Items[0]}
}

func encodedSize(t *testing.T, o stored) int {
	t.Helper()
	encoded, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return len(encoded)
}

// fieldsIn are the paths of an object's fields. Who manages them is one field.
func fieldsIn(t *testing.T, o stored) map[string]bool {
	t.Helper()
	content, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(content, &tree); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		found[path] = true
		switch value := value.(type) {
		case map[string]any:
			for name, child := range value {
				if name != "managedFields" {
					walk(path+"."+name, child)
				}
			}
		case []any:
			for _, child := range value {
				walk(path+"[]", child)
			}
		}
	}
	walk("", tree)
	found[".metadata.managedFields"] = len(o.GetManagedFields()) > 0
	return found
}

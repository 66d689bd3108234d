package deploy_test

// This file holds Sickbay's worker to what it may change of a node: its own taint, its own
// annotation, and a cordon together with that.

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/deploy"
)

// granting grants every permit.
type granting struct{}

func (granting) NodePermit(context.Context, isolation.Put) (kube.Permit, error) {
	return kube.Permit{Granted: true}, nil
}

// onlyIsolates has a worker's account try what isolates a node, and what goes beyond.
func (w *watching) onlyIsolates(worker deploy.Account) {
	w.Helper()
	client := kubernetes.NewForConfigOrDie(worker.Config)
	try := func(name, patch string, subresources ...string) error {
		_, err := client.CoreV1().Nodes().Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
	ready := `{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	for _, name := range []string{"bare", "gpu-1", "gpu-2"} {
		_, err := w.client.CoreV1().Nodes().Patch(w.Context(), name, types.MergePatchType, []byte(ready), metav1.PatchOptions{}, "status")
		must(w.T, err)
	}
	// Somebody cordoned one, and has a taint on it.
	theirs := `{"metadata":{"annotations":{"site":"a"}},"spec":{"unschedulable":true,"taints":[{"key":"site","effect":"NoSchedule"}]}}`
	_, err := w.client.CoreV1().Nodes().Patch(w.Context(), "gpu-2", types.MergePatchType, []byte(theirs), metav1.PatchOptions{})
	must(w.T, err)
	w.eventually("a label of a node can't be changed", func(context.Context) error {
		if err := try("gpu-1", `{"metadata":{"labels":{"a":"b"}}}`); !refusedNode(err, "no labels, finalizers or owners") {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	const cordon = `{\"epoch\":1,\"way\":\"cordon\"}`
	for what, c := range map[string]struct{ node, patch, why string }{
		"cordon one without a word":             {"gpu-1", `{"spec":{"unschedulable":true}}`, "cordon a node only together with the annotation"},
		"cordon one with a word of a taint":     {"gpu-1", `{"metadata":{"annotations":{"sickbay.dev/isolated":"{\"way\":\"taint\"}"}},"spec":{"unschedulable":true}}`, "cordon a node only together with the annotation"},
		"uncordon what somebody cordoned":       {"gpu-2", `{"spec":{"unschedulable":null}}`, "uncordon only a node that Sickbay cordoned"},
		"take somebody's cordon for its own":    {"gpu-2", `{"metadata":{"annotations":{"sickbay.dev/isolated":"` + cordon + `"}}}`, "somebody else's cordon for theirs"},
		"evict what runs on one":                {"gpu-1", `{"metadata":{"annotations":{"sickbay.dev/isolated":"x"}},"spec":{"taints":[{"key":"sickbay.dev/isolated","effect":"NoExecute"}]}}`, "NoExecute would delete"},
		"put another taint on one":              {"gpu-1", `{"spec":{"taints":[{"key":"site","effect":"NoSchedule"}]}}`, "no taint of a node but"},
		"taint one without a word":              {"gpu-1", `{"spec":{"taints":[{"key":"sickbay.dev/isolated","value":"1","effect":"NoSchedule"}]}}`, "taint a node only together with the annotation"},
		"take somebody's taint off one":         {"gpu-2", `{"spec":{"taints":null}}`, "no taint of a node but"},
		"change an annotation":                  {"gpu-2", `{"metadata":{"annotations":{"site":"b"}}}`, "no annotation of a node but"},
		"take an annotation off one":            {"gpu-2", `{"metadata":{"annotations":{"site":null}}}`, "no annotation of a node but"},
		"give one an annotation":                {"gpu-1", `{"metadata":{"annotations":{"site":"b"}}}`, "no annotation of a node but"},
		"let nobody delete one":                 {"gpu-1", `{"metadata":{"finalizers":["sickbay.dev/a"]}}`, "no labels, finalizers or owners"},
		"say that one is a machine of its site": {"gpu-1", `{"spec":{"providerID":"site://1"}}`, "nothing else of a node"},
	} {
		if err := try(c.node, c.patch); !refusedNode(err, c.why) {
			w.Errorf("a worker may %s: %v", what, err)
		}
	}
	// What it does is let through, in both ways, and leaves what is others'.
	writer := kube.NewNodeWriter(client, granting{})
	for _, way := range []isolation.Way{isolation.Taint, isolation.Cordon} {
		put := isolation.Put{
			Node: "gpu-1", Epoch: 42, Way: way, Ground: isolation.Ground{Kind: isolation.Devices, Text: "2 of 2"},
			Levels: isolation.Levels{Total: 2, Classes: []budget.Size{{Scope: budget.Scope{Kind: budget.Class, Name: "gpu.example.com"}, Eligible: 2}}},
		}
		written, err := writer.Put(w.Context(), put)
		if err != nil || written.Outcome != isolation.InForce {
			w.Errorf("isolated by a %s: %+v, %v", way, written, err)
		}
		standing, err := writer.Standing(w.Context())
		if err != nil || len(standing) != 1 || standing[0].Device != "node/gpu-1" || standing[0].Cost != 2 {
			w.Errorf("stands by a %s: %+v, %v", way, standing, err)
		}
	}
	taken, err := writer.Lift(w.Context(), isolation.Lift{Node: "gpu-1", Epoch: 42})
	if err != nil || taken.Outcome != isolation.Lifted {
		w.Errorf("given back: %+v, %v", taken, err)
	}
	written, err := writer.Put(w.Context(), isolation.Put{Node: "gpu-2", Epoch: 42, Way: isolation.Taint, Ground: isolation.Ground{Text: "2 of 2"}})
	if err != nil || written.Outcome != isolation.InForce {
		w.Errorf("tainted beside somebody's cordon: %+v, %v", written, err)
	}
	taken, err = writer.Lift(w.Context(), isolation.Lift{Node: "gpu-2", Epoch: 42})
	if err != nil || taken.Outcome != isolation.Lifted {
		w.Errorf("given back beside somebody's cordon: %+v, %v", taken, err)
	}
	written, err = writer.Put(w.Context(), isolation.Put{Node: "gpu-2", Epoch: 43, Way: isolation.Cordon})
	if err != nil || written.Outcome != isolation.Foreign {
		w.Errorf("cordoned what somebody cordoned: %+v, %v", written, err)
	}
	for name, want := range map[string]bool{"gpu-1": false, "gpu-2": true} {
		node, err := w.client.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
		must(w.T, err)
		ours := false
		for _, t := range node.Spec.Taints {
			ours = ours || t.Key == kube.NodeTaintKey
		}
		if node.Annotations[kube.AnnotationIsolated] != "" || ours || node.Spec.Unschedulable != want || (name == "gpu-2") != hasTaint(node, "site") {
			w.Errorf("left is %+v, annotated %v", node.Spec, node.Annotations)
		}
	}
}

func refusedNode(err error, why string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'sickbay-nodes'") && strings.Contains(err.Error(), why)
}

func hasTaint(node *corev1.Node, key string) bool {
	for _, t := range node.Spec.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}

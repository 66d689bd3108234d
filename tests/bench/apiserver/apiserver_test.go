package apiserver

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"
)

const (
	fleetNodes = 30
	perNode    = 4
)

func start(t *testing.T) (*Server, *rest.Config) {
	t.Helper()
	s, err := Start(Fleet{Nodes: fleetNodes, DevicesPerNode: perNode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.WriteKubeconfig(path); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return s, config
}

// An informer as Sickbay uses them fills by a streaming list and sees what changes
// afterwards.
func TestAnInformerIsFilledAndFollowsWhatChanges(t *testing.T) {
	for name, accept := range map[string]string{"protobuf": "", "JSON": "application/json"} {
		t.Run(name, func(t *testing.T) {
			s, config := start(t)
			config.ContentType = accept
			factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
			all := map[string]cache.SharedIndexInformer{
				"pods": factory.Core().V1().Pods().Informer(), "nodes": factory.Core().V1().Nodes().Informer(),
				"resourceclaims":   factory.Resource().V1().ResourceClaims().Informer(),
				"resourceslices":   factory.Resource().V1().ResourceSlices().Informer(),
				"devicetaintrules": factory.Resource().V1().DeviceTaintRules().Informer(),
			}
			broken := make(chan *corev1.Pod, 100)
			_, err := all["pods"].AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) {
				for _, c := range now.(*corev1.Pod).Status.ContainerStatuses {
					for _, r := range c.AllocatedResourcesStatus[0].Resources {
						if r.Health == corev1.ResourceHealthStatusUnhealthy {
							broken <- now.(*corev1.Pod)
						}
					}
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer func() { cancel(); factory.Shutdown() }()
			factory.StartWithContext(ctx)
			for what, informer := range all {
				if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
					t.Fatalf("%s aren't listed", what)
				}
				want := fleetNodes
				if what == "devicetaintrules" {
					want = 0
				}
				if got := len(informer.GetStore().ListKeys()); got != want {
					t.Errorf("%d %s, want %d", got, what, want)
				}
			}
			if _, err := s.Break(7, "gpu-2", "XID 79"); err != nil {
				t.Fatal(err)
			}
			select {
			case pod := <-broken:
				if pod.Name != PodName(7) {
					t.Errorf("%s is broken, want %s", pod.Name, PodName(7))
				}
			case <-ctx.Done():
				t.Fatal("the fault didn't come")
			}
			for _, c := range s.Calls(time.Time{}) {
				if c.Verb == "list" {
					t.Errorf("%s were listed, although a streaming list was offered", c.Resource)
				}
			}
		})
	}
}

// A list in pages, as the commands for people read, gives every object once, and
// selectors narrow it.
func TestPagesGiveEveryObjectOnce(t *testing.T) {
	s, config := start(t)
	client := kubernetes.NewForConfigOrDie(config)
	seen := map[string]int{}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	})
	pages.PageSize = 7
	err := pages.EachListItem(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
		seen[o.(*corev1.Pod).Name]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != fleetNodes || seen[PodName(3)] != 1 {
		t.Errorf("%d Pods, want %d: %v", len(seen), fleetNodes, seen)
	}
	if got := len(s.Calls(time.Time{})); got != (fleetNodes+6)/7 {
		t.Errorf("%d pages, want %d", got, (fleetNodes+6)/7)
	}
	slices, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + NodeName(5),
	})
	if err != nil || len(slices.Items) != 1 || len(slices.Items[0].Spec.Devices) != perNode {
		t.Errorf("slices of one node: %+v, error %v", slices, err)
	}
	rules, err := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{
		Group: resourceapi.GroupName, Version: "v1", Resource: "devicetaintrules",
	}).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(rules.Items) != 0 || rules.GetResourceVersion() == "" {
		t.Errorf("taint rules: %+v, error %v", rules, err)
	}
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), NodeName(2), metav1.GetOptions{})
	if err != nil || time.Since(lease.Spec.RenewTime.Time) > leaseEvery+time.Second {
		t.Errorf("the Lease of a node: %+v, error %v", lease, err)
	}
}

// A watch from before what is remembered is refused, so that its client lists again.
func TestAWatchFromTooLongAgoIsRefused(t *testing.T) {
	_, config := start(t)
	config.ContentType = "application/json"
	pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(metav1.NamespaceAll)
	if _, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("watched from version 1: %v", err)
	}
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != fleetNodes || list.Items[0].Status.Phase != corev1.PodRunning {
		t.Fatalf("%d Pods, error %v", len(list.Items), err)
	}
	watching, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	watching.Stop()
}

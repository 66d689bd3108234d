package listing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Cluster is what was read from Kubernetes.
type Cluster struct {
	Slices []device.Slice
	Claims []device.Claim
	Pods   []device.Pod
	Marks  []kube.Mark
	// Nodes is nil, as Slices is, where they could not be read.
	Nodes []Node
	// Classes are the DeviceClasses.
	Classes []device.Class
	// NoClasses says why there are no Classes, where they could not be read. Only
	// whoever asks for a class lacks something by that.
	NoClasses string
	// Delays are the reporting delays of drivers.
	Delays Delays
	// Known is where which driver ever reported health.
	Known Known
	// Blind is what Sickbay itself can't see now.
	Blind []string
	// Problems says what could not be read, Notes what the cluster lacks.
	Problems []string
	Notes    []string
}

// Clients are the ways to the API server.
type Clients struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Discovery  discovery.DiscoveryInterface
	// Delays are the reporting delays of drivers; nil where they aren't known.
	Delays Delays
	// Ours is where Sickbay's own claims and Pods are; nothing there holds a device.
	Ours device.Ours
	// Starters say where those write down who ever reported health; nil is nowhere.
	Starters *Election
}

// ErrNothingRead is returned when not one of the sources could be read.
var ErrNothingRead = errors.New("nothing could be read from the cluster")

// noMarks is said where there is nothing to mark devices with.
const noMarks = "the cluster serves no DeviceTaintRule API: no DRA device can be kept out (in 1.36, set the feature gate DRADeviceTaintRules and serve resource.k8s.io/v1beta2)"

// Read reads everything once. A source that can't be read becomes a problem; if
// none can, the error wraps ErrNothingRead.
func Read(ctx context.Context, clients Clients) (Cluster, error) {
	cluster := Cluster{Delays: clients.Delays}
	sources := []struct {
		what string
		lost string
		read func() error
	}{
		{"ResourceSlices", "devices that nobody holds are missing", func() (err error) {
			cluster.Slices, err = each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return clients.Kubernetes.ResourceV1().ResourceSlices().List(ctx, o)
			}, func(s *resourcev1.ResourceSlice) (device.Slice, bool) { return kube.SliceView(s), true })
			return err
		}},
		{"ResourceClaims", "holders are missing", func() (err error) {
			cluster.Claims, err = each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return clients.Kubernetes.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, o)
			}, func(c *resourcev1.ResourceClaim) (device.Claim, bool) {
				return clients.Ours.Claim(kube.ClaimView(c)), true
			})
			return err
		}},
		{"Pods", "reported health is missing", func() (err error) {
			cluster.Pods, err = each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return clients.Kubernetes.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
			}, func(p *corev1.Pod) (device.Pod, bool) { return clients.Ours.Pod(kube.PodView(p)), true })
			return err
		}},
		{nodeObjects, lostWithoutNodes, func() (err error) {
			cluster.Nodes, err = each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return clients.Kubernetes.CoreV1().Nodes().List(ctx, o)
			}, nodeView)
			return err
		}},
		{"DeviceTaintRules", "marks are missing", func() (err error) {
			found, err := kube.Discover(ctx, clients.Discovery)
			if err != nil {
				return err
			}
			if !found.CanMark() {
				cluster.Notes = append(cluster.Notes, noMarks)
				return nil
			}
			cluster.Marks, err = each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return clients.Dynamic.Resource(found.TaintRules).List(ctx, o)
			}, kube.ReadMark)
			return err
		}},
		{deviceClasses, "classes are those by which devices are allocated, and no others", func() (err error) {
			cluster.Classes, err = each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return clients.Kubernetes.ResourceV1().DeviceClasses().List(ctx, o)
			}, func(c *resourcev1.DeviceClass) (device.Class, bool) { return kube.ClassView(c), true })
			return err
		}},
	}
	failures := make([]error, len(sources))
	var reads sync.WaitGroup
	for i, source := range sources {
		reads.Go(func() { failures[i] = source.read() })
	}
	reads.Go(func() {
		if clients.Starters != nil {
			cluster.Known = clients.Starters.Known(ctx, clients.Kubernetes)
		}
	})
	reads.Wait()
	failed := 0
	for i, source := range sources {
		if failures[i] == nil {
			continue
		}
		failed++
		said := fmt.Sprintf("%s can't be read, so %s: %v", source.what, source.lost, failures[i])
		if source.what == deviceClasses {
			cluster.NoClasses = said
		} else {
			cluster.Problems = append(cluster.Problems, said)
		}
	}
	if failed == len(sources) {
		return cluster, fmt.Errorf("%w: %w", ErrNothingRead, errors.Join(failures...))
	}
	slices.Sort(cluster.Problems)
	return cluster, nil
}

// each lists page by page and keeps a view of each object, so that a large
// cluster's objects are never in memory all at once.
func each[Object runtime.Object, View any](ctx context.Context, list pager.ListPageFunc, view func(Object) (View, bool)) ([]View, error) {
	views := []View{}
	err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		typed, ok := object.(Object)
		if !ok {
			return fmt.Errorf("the API server listed a %T", object)
		}
		if v, ok := view(typed); ok {
			views = append(views, v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return views, nil
}

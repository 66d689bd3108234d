package starter

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// source is one watched resource.
type source struct {
	// resource is its name as rights are granted on it.
	resource string
	informer cache.SharedIndexInformer
	// handled is done when the first list has gone through the tracker.
	handled cache.DoneChecker
}

// lister is how a resource is listed and watched.
type lister struct {
	resource string
	object   runtime.Object
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	trim     cache.TransformFunc
	// client tells whether streaming lists are supported.
	client any
}

// watched is what is kept of an object: what names it and its version, which the
// informer needs, and the view of it, which the tracker keeps too. Of a slice, the
// object would take more memory than all that the tracker knows of its devices.
type watched[View any] struct {
	metav1.ObjectMeta
	view View
}

// viewed makes a transform that keeps the view of an object. What has gone through
// it already it leaves as it is, as informers demand.
func viewed[Object metav1.Object, View any](trim cache.TransformFunc, view func(Object) View) cache.TransformFunc {
	return func(object any) (any, error) {
		trimmed, err := trim(object)
		o, ok := trimmed.(Object)
		if err != nil || !ok {
			return trimmed, err
		}
		return &watched[View]{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		}, view: view(o)}, nil
	}
}

// handler says what becomes of a resource's objects.
type handler[T any] struct {
	seen func(T)
	gone func(T)
}

// newSource sets a watch up. Every list and watch call reports to the eyes, and
// every new list, whether at the start or because a watch was lost, starts a
// settling.
func newSource[T any](l lister, eyes *eyes, settling *settling, handle handler[T]) (*source, error) {
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := l.list(ctx, options)
			if err != nil {
				return list, l.report(ctx, eyes, "list", err)
			}
			settling.begin()
			eyes.opened(l.resource)
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := l.watch(ctx, options)
			if err != nil {
				return w, l.report(ctx, eyes, "watch", err)
			}
			if options.SendInitialEvents != nil && *options.SendInitialEvents {
				settling.begin()
			}
			eyes.opened(l.resource)
			return eyes.listen(l.resource, w), nil
		},
	}, l.client)
	informer := cache.NewSharedIndexInformerWithOptions(lw, l.object, cache.SharedIndexInformerOptions{ObjectDescription: l.resource})
	if err := informer.SetTransform(l.trim); err != nil {
		return nil, fmt.Errorf("set up the watch of %s: %w", l.resource, err)
	}
	// The calls report by themselves; client-go's own log line would repeat it
	// every few seconds.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, fmt.Errorf("set up the watch of %s: %w", l.resource, err)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { deliver(object, handle.seen) },
		UpdateFunc: func(_, object any) { deliver(object, handle.seen) },
		DeleteFunc: func(object any) { deliver(object, handle.gone) },
	})
	if err != nil {
		return nil, fmt.Errorf("set up the watch of %s: %w", l.resource, err)
	}
	return &source{resource: l.resource, informer: informer, handled: registration.HasSyncedChecker()}, nil
}

// report tells the eyes of a failed call, unless it failed because the starter ends.
func (l lister) report(ctx context.Context, eyes *eyes, verb string, err error) error {
	if ctx.Err() == nil {
		eyes.failed(l.resource, verb, err)
	}
	return err
}

// deliver hands an object on. What was missed while the watch was broken comes as
// the last state that was known.
func deliver[T any](object any, to func(T)) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if typed, ok := object.(T); ok {
		to(typed)
	}
}

// podSource watches the Pods that have a node; others have no devices yet.
func podSource(client kubernetes.Interface, t *tracker, eyes *eyes, settling *settling) (*source, error) {
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	assigned := func(options metav1.ListOptions) metav1.ListOptions {
		options.FieldSelector = "spec.nodeName!="
		return options
	}
	return newSource(lister{
		resource: "pods", object: &corev1.Pod{}, client: client, trim: viewed(kube.TrimPod, kube.PodView),
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, assigned(o))
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, assigned(o))
		},
	}, eyes, settling, handler[*watched[device.Pod]]{
		seen: func(pod *watched[device.Pod]) { t.podSeen(pod.view) },
		gone: func(pod *watched[device.Pod]) { t.podGone(pod.view.Ref) },
	})
}

func claimSource(client kubernetes.Interface, t *tracker, eyes *eyes, settling *settling) (*source, error) {
	claims := client.ResourceV1().ResourceClaims(metav1.NamespaceAll)
	return newSource(lister{
		resource: "resourceclaims.resource.k8s.io", object: &resourcev1.ResourceClaim{}, client: client, trim: viewed(kube.TrimClaim, kube.ClaimView),
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return claims.List(ctx, o) },
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return claims.Watch(ctx, o)
		},
	}, eyes, settling, handler[*watched[device.Claim]]{
		seen: func(claim *watched[device.Claim]) { t.claimSeen(claim.view) },
		gone: func(claim *watched[device.Claim]) { t.claimGone(claim.Namespace, claim.Name) },
	})
}

func sliceSource(client kubernetes.Interface, t *tracker, eyes *eyes, settling *settling) (*source, error) {
	all := client.ResourceV1().ResourceSlices()
	return newSource(lister{
		resource: "resourceslices.resource.k8s.io", object: &resourcev1.ResourceSlice{}, client: client, trim: viewed(kube.TrimSlice, kube.SliceView),
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return all.Watch(ctx, o) },
	}, eyes, settling, handler[*watched[device.Slice]]{
		seen: func(slice *watched[device.Slice]) { t.sliceSeen(slice.Name, slice.view) },
		gone: func(slice *watched[device.Slice]) { t.sliceGone(slice.Name) },
	})
}

func nodeSource(client kubernetes.Interface, t *tracker, eyes *eyes, settling *settling) (*source, error) {
	nodes := client.CoreV1().Nodes()
	return newSource(lister{
		resource: "nodes", object: &corev1.Node{}, client: client, trim: viewed(kube.TrimNode, viewNode),
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return nodes.Watch(ctx, o) },
	}, eyes, settling, handler[*watched[nodeView]]{
		seen: func(node *watched[nodeView]) {
			t.nodeSeen(node.Name, string(node.UID), node.view.offers)
			t.nodeReady(node.Name, node.view.ready)
			t.nodeShows(node.Name, node.view.whole)
		},
		gone: func(node *watched[nodeView]) { t.nodeGone(node.Name) },
	})
}

// nodeView is what is read of a node.
type nodeView struct {
	ready  device.Readiness
	offers map[string]device.Offer
	whole  wholeNode
}

func viewNode(node *corev1.Node) nodeView {
	view := nodeView{ready: readiness(node), offers: kube.OffersOf(node)}
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue {
			view.whole.conditions = append(view.whole.conditions, string(c.Type))
		}
	}
	if mark, ours := kube.ReadNodeMark(node, 0); ours {
		view.whole.mark = &mark
	}
	return view
}

// readiness is what a node's condition Ready says.
func readiness(node *corev1.Node) device.Readiness {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return device.Readiness(c.Status)
		}
	}
	return device.ReadyUnknown
}

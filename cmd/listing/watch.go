package listing

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

const (
	deviceClasses = "DeviceClasses"
	nodeObjects   = "Nodes"
	apiServer     = "the API server"
	// knockEvery is the pause between two questions whether the API server is there.
	knockEvery = 5 * time.Second
)

// Watch follows a cluster. What Read asks for once, it keeps current.
type Watch struct {
	slices, claims, pods, nodes cache.SharedIndexInformer
	// marks is nil where the cluster serves no DeviceTaintRules.
	marks   cache.SharedIndexInformer
	classes cache.SharedIndexInformer
	delays  Delays
	// starters and client tell where starters write down who ever reported health; nil
	// is nowhere.
	starters *Election
	ours     device.Ours
	client   kubernetes.Interface
	changed  chan struct{}
	runs     sync.WaitGroup

	mu      sync.Mutex
	trouble map[string]error // what can't be watched, by what it is
	known   Known
}

// NewWatch starts to follow a cluster until ctx is done, and returns once
// everything has been read. It fails if that takes until ctx is done.
func NewWatch(ctx context.Context, clients Clients) (*Watch, error) {
	found, err := kube.Discover(ctx, clients.Discovery)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(clients.Kubernetes, 0)
	w := &Watch{
		slices:  factory.Resource().V1().ResourceSlices().Informer(),
		claims:  factory.Resource().V1().ResourceClaims().Informer(),
		pods:    factory.Core().V1().Pods().Informer(),
		nodes:   factory.Core().V1().Nodes().Informer(),
		classes: factory.Resource().V1().DeviceClasses().Informer(),
		delays:  clients.Delays, starters: clients.Starters, ours: clients.Ours, client: clients.Kubernetes,
		changed: make(chan struct{}, 1),
		trouble: map[string]error{},
	}
	if found.CanMark() {
		w.marks = dynamicinformer.NewDynamicSharedInformerFactory(clients.Dynamic, 0).ForResource(found.TaintRules).Informer()
	}
	var synced []cache.InformerSynced
	for _, source := range []struct {
		what     string
		informer cache.SharedIndexInformer
		trim     cache.TransformFunc
	}{
		{"ResourceSlices", w.slices, kube.TrimSlice},
		{"ResourceClaims", w.claims, kube.TrimClaim},
		{"Pods", w.pods, kube.TrimPod},
		{nodeObjects, w.nodes, kube.TrimNode},
		{"DeviceTaintRules", w.marks, nil},
		{deviceClasses, w.classes, nil},
	} {
		if source.informer == nil {
			continue
		}
		if err := w.follow(ctx, source.what, source.informer, source.trim); err != nil {
			return nil, err
		}
		// Without classes and nodes the rest is still worth watching.
		switch source.what {
		case deviceClasses:
		case nodeObjects:
			synced = append(synced, func() bool { return source.informer.HasSynced() || w.troubled(nodeObjects) })
		default:
			synced = append(synced, source.informer.HasSynced)
		}
	}
	w.recall(ctx)
	w.runs.Go(func() { w.knock(ctx, clients.Discovery.RESTClient()) })
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, fmt.Errorf("read the cluster: %w", w.missing(ctx))
	}
	return w, nil
}

func (w *Watch) follow(ctx context.Context, what string, informer cache.SharedIndexInformer, trim cache.TransformFunc) error {
	if err := informer.SetTransform(trim); err != nil {
		return fmt.Errorf("watch %s: %w", what, err)
	}
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.mu.Lock()
		w.trouble[what] = err
		w.mu.Unlock()
		w.notify()
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", what, err)
	}
	seen := func() {
		w.mu.Lock()
		delete(w.trouble, what)
		w.mu.Unlock()
		w.notify()
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { seen() },
		UpdateFunc: func(any, any) { seen() },
		DeleteFunc: func(any) { seen() },
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", what, err)
	}
	w.runs.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

// knock asks the API server from time to time whether it is there: a watch whose
// connection is refused is tried again without a word.
func (w *Watch) knock(ctx context.Context, server rest.Interface) {
	tick := time.NewTicker(knockEvery)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, knockEvery)
		err := server.Get().AbsPath("/version").Do(limited).Error()
		cancel()
		w.mu.Lock()
		before := w.trouble[apiServer]
		if err == nil {
			delete(w.trouble, apiServer)
		} else if ctx.Err() == nil {
			w.trouble[apiServer] = err
		}
		w.mu.Unlock()
		if (before == nil) != (err == nil) {
			w.notify()
		}
		w.recall(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// recall reads which drivers ever reported health. What was known stays where it can't be
// read: it only ever grows.
func (w *Watch) recall(ctx context.Context) {
	if w.starters == nil {
		return
	}
	known := w.starters.Known(ctx, w.client)
	w.mu.Lock()
	news := known != nil && !maps.EqualFunc(known, w.known, maps.Equal)
	if news {
		w.known = known
	}
	w.mu.Unlock()
	if news {
		w.notify()
	}
}

func (w *Watch) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Wait returns once nothing is followed any more: after the context of NewWatch
// is done.
func (w *Watch) Wait() { w.runs.Wait() }

// Changed tells that there may be something new.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Cluster is what is known now.
func (w *Watch) Cluster() Cluster {
	cluster := Cluster{
		Delays:  w.delays,
		Slices:  views(w.slices, func(s *resourcev1.ResourceSlice) (device.Slice, bool) { return kube.SliceView(s), true }),
		Claims:  views(w.claims, func(c *resourcev1.ResourceClaim) (device.Claim, bool) { return w.ours.Claim(kube.ClaimView(c)), true }),
		Pods:    views(w.pods, func(p *corev1.Pod) (device.Pod, bool) { return w.ours.Pod(kube.PodView(p)), true }),
		Classes: views(w.classes, func(c *resourcev1.DeviceClass) (device.Class, bool) { return kube.ClassView(c), true }),
	}
	if w.nodes.HasSynced() {
		cluster.Nodes = views(w.nodes, nodeView)
	}
	if w.marks == nil {
		cluster.Notes = append(cluster.Notes, noMarks)
	} else {
		cluster.Marks = views(w.marks, kube.ReadMark)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	cluster.Known = w.known
	for what, err := range w.trouble {
		said := fmt.Sprintf("%s can't be watched, so what is shown of them may be old: %v", what, err)
		switch what {
		case deviceClasses:
			cluster.NoClasses = said
		case nodeObjects:
			cluster.Problems = append(cluster.Problems, fmt.Sprintf("%s can't be watched, so %s: %v", what, lostWithoutNodes, err))
		case apiServer:
			cluster.Problems = append(cluster.Problems, fmt.Sprintf("%s doesn't answer, so what is shown may be old: %v", what, err))
		default:
			cluster.Problems = append(cluster.Problems, said)
		}
	}
	slices.Sort(cluster.Problems)
	return cluster
}

// troubled tells that something can't be watched now.
func (w *Watch) troubled(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble[what] != nil
}

// missing says why the first read didn't end.
func (w *Watch) missing(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, err := range w.trouble {
		return fmt.Errorf("%s: %w", what, err)
	}
	return context.Cause(ctx)
}

func views[Object, View any](informer cache.SharedIndexInformer, view func(Object) (View, bool)) []View {
	all := []View{}
	for _, object := range informer.GetStore().List() {
		typed, ok := object.(Object)
		if !ok {
			continue
		}
		if v, ok := view(typed); ok {
			all = append(all, v)
		}
	}
	return all
}

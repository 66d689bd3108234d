package starter

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// ruleWatch watches device taint rules in whatever version the API server serves,
// as soon as it does. All rules are watched and not only ours: a rule of somebody
// else that selects every device is news too.
type ruleWatch struct {
	tracker   *tracker
	discovery discovery.DiscoveryInterface
	dynamic   dynamic.Interface
	eyes      *eyes
	settling  *settling
	timing    Timing
	clock     clock.WithTicker
	log       *slog.Logger

	// first is closed when it is known whether rules are served and, if they are,
	// the first list has gone through the tracker.
	first   chan struct{}
	told    sync.Once
	missing sync.Once
}

// run asks the API server again and again what it serves, and watches that, until
// ctx ends.
func (w *ruleWatch) run(ctx context.Context) {
	var watched schema.GroupVersionResource
	end := func() {}
	defer func() { end() }()
	ticker := w.clock.NewTicker(w.timing.Rediscover)
	defer ticker.Stop()
	for {
		served, err := kube.Discover(ctx, w.discovery)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.log.Warn("can't tell whether device taint rules are served; asked again", "error", err, "again", w.timing.Rediscover.String())
		case served.TaintRules == watched:
		default:
			end()
			end, watched = func() {}, served.TaintRules
			if served.CanMark() {
				w.log.Info("watching device taint rules", "version", watched.Version)
				end = w.start(ctx, watched)
			}
		}
		if err == nil {
			w.tracker.rulesServed(served.CanMark())
		}
		if err == nil && !served.CanMark() {
			w.missing.Do(func() {
				w.log.Warn("device taint rules are not served; cases are advisory until they are",
					"remedy", "Kubernetes 1.37, or 1.36 with the feature gate DRADeviceTaintRules and runtime-config resource.k8s.io/v1beta2=true")
			})
			w.known()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// start watches one API version's rules, until the returned function is called.
func (w *ruleWatch) start(ctx context.Context, gvr schema.GroupVersionResource) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { w.watch(ctx, gvr) })
	return func() {
		stop()
		work.Wait()
	}
}

// known marks that it is known which marks there are.
func (w *ruleWatch) known() { w.told.Do(func() { close(w.first) }) }

// watch watches the rules of one API version until ctx ends.
func (w *ruleWatch) watch(ctx context.Context, gvr schema.GroupVersionResource) {
	rules := w.dynamic.Resource(gvr)
	resource := gvr.GroupResource().String()
	defer w.eyes.closed(resource)
	source, err := newSource(lister{
		resource: resource, object: &unstructured.Unstructured{}, client: w.dynamic, trim: trimRule,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return rules.List(ctx, o) },
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return rules.Watch(ctx, o)
		},
	}, w.eyes, w.settling, handler[*unstructured.Unstructured]{
		seen: w.seen,
		gone: func(rule *unstructured.Unstructured) { w.tracker.markGone(rule.GetName()) },
	})
	if err != nil {
		w.eyes.failed(resource, "watch", err)
		return
	}
	var work sync.WaitGroup
	work.Go(func() { source.informer.RunWithContext(ctx) })
	select {
	case <-ctx.Done():
	case <-source.handled.Done():
		names := map[string]struct{}{}
		for _, name := range source.informer.GetStore().ListKeys() {
			names[name] = struct{}{}
		}
		w.tracker.marksListed(names)
		w.known()
	}
	work.Wait()
}

func (w *ruleWatch) seen(rule *unstructured.Unstructured) {
	read, ours := kube.ReadMark(rule)
	if !ours {
		selects, wide := kube.Selects(rule)
		w.tracker.foreignRule(rule.GetName(), selects, wide)
		return
	}
	w.tracker.markSeen(read.Device, mark{rule: rule.GetName(), node: read.Node, found: read.Found, intact: read.Intact})
}

// trimRule drops what nobody reads.
func trimRule(object any) (any, error) {
	rule, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, errors.New("a device taint rule came in an unexpected form")
	}
	rule.SetManagedFields(nil)
	unstructured.RemoveNestedField(rule.Object, "status")
	return rule, nil
}

package policywatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// State is what is known of the ConfigMap.
type State string

const (
	// Waiting: it wasn't read yet. Nothing is enforced.
	Waiting State = "waiting"
	// None: there is none, and there was none. The environment holds.
	None State = "none"
	// Read: it is in force.
	Read State = "read"
	// Refused: what it says is wrong. The last good one holds; where there was none,
	// nothing is enforced.
	Refused State = "refused"
	// Deleted: it is gone. The last good one holds until the process ends.
	Deleted State = "deleted"
	// Unreadable: the API server lets nobody read it here. The environment holds, or the
	// last good one.
	Unreadable State = "unreadable"
)

// States lists all states.
func States() []State { return []State{Waiting, None, Read, Refused, Deleted, Unreadable} }

// Status is what is known of the ConfigMap, and since when.
type Status struct {
	State State
	// Version is the resourceVersion of what was read last, right or wrong, and InForce
	// that of what holds; empty is the environment.
	Version, InForce string
	// Err says what is wrong.
	Err error
}

// Options is what a watch needs.
type Options struct {
	Kubernetes kubernetes.Interface
	// Namespace is where the ConfigMap policy.ConfigMapName is.
	Namespace string
	// Base is what holds where it says nothing.
	Base       policy.Base
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// Events is set in a process that writes Events; one of several kinds is enough.
	Events bool
}

// Watch keeps what is in force.
type Watch struct {
	options  Options
	informer cache.Controller

	// held is what is in force. It is asked at every decision, and waits for nothing.
	held atomic.Pointer[policy.InForce]

	mu sync.Mutex
	// good is set once a policy was read that is right.
	good   bool
	status Status
	// known is closed once it is known what holds.
	known chan struct{}
	// broken is the last failure that was logged.
	broken string
	// pause is how long an API server that is away is waited for between two tries.
	pause time.Duration
}

// awayPause is Watch.pause. The informer's own grows to a minute, and a policy that is
// written because the API server was away must not wait for that.
const awayPause = 2 * time.Second

// New prepares a watch. Nothing is read before Run.
func New(o Options) (*Watch, error) {
	w := &Watch{options: o, known: make(chan struct{}), status: Status{State: Waiting}, pause: awayPause}
	w.held.Store(policy.Held(o.Base, "the ConfigMap wasn't read yet"))
	objects := o.Kubernetes.CoreV1().ConfigMaps(o.Namespace)
	only := func(options metav1.ListOptions) metav1.ListOptions {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, policy.ConfigMapName).String()
		return options
	}
	_, w.informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listed{&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				list, err := patiently(ctx, w, "list", func() (*corev1.ConfigMapList, error) { return objects.List(ctx, only(options)) })
				if err == nil {
					w.listed(list.Items)
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return patiently(ctx, w, "watch", func() (watch.Interface, error) { return objects.Watch(ctx, only(options)) })
			},
		}},
		ObjectType: &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { w.seen(object.(*corev1.ConfigMap)) },
			UpdateFunc: func(_, object any) { w.seen(object.(*corev1.ConfigMap)) },
			DeleteFunc: func(any) { w.gone() },
		},
	})
	return w, o.Registerer.Register(telemetry.PolicyState.Read(func(emit func(float64, ...string)) { emit(1, string(w.Status().State)) }))
}

// patiently calls until the API server answers, whatever it answers, or ctx ends.
func patiently[T any](ctx context.Context, w *Watch, verb string, call func() (T, error)) (T, error) {
	for {
		answer, err := call()
		if err == nil {
			return answer, nil
		}
		w.failed(ctx, verb, err)
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return answer, err
		}
		timer := time.NewTimer(w.pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return answer, err
		case <-timer.C:
		}
	}
}

// listed is a list and then a watch: one object needs no stream for its beginning, and
// the rights are the same two whatever the API server can do.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how a reflector asks.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) { w.informer.RunWithContext(ctx) }

// Current is what is in force.
func (w *Watch) Current() *policy.InForce { return w.held.Load() }

// Status is what is known of the ConfigMap.
func (w *Watch) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Await waits until it is known what holds, or ctx ends.
func (w *Watch) Await(ctx context.Context) error {
	select {
	case <-w.known:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listed takes in that the ConfigMap could be asked for. What it says comes as an event,
// unless there is none.
func (w *Watch) listed(items []corev1.ConfigMap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != "" {
		w.options.Log.Info("the policy can be read again", "configmap", w.name())
		w.broken = ""
	}
	if len(items) == 0 && !w.good && w.status.State != None {
		w.options.Log.Info("no policy; the environment holds", "configmap", w.name())
		w.hold(policy.New(w.options.Base, nil), Status{State: None})
	}
	if len(items) > 0 && w.status.State == Unreadable {
		// The same version brings no event.
		w.take(&items[0])
	}
}

// seen takes in what the ConfigMap says.
func (w *Watch) seen(object *corev1.ConfigMap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status.State == Read && w.status.Version == object.ResourceVersion || w.status.State == Refused && w.status.Version == object.ResourceVersion {
		return
	}
	w.take(object)
}

func (w *Watch) take(object *corev1.ConfigMap) {
	document, err := Parse(object)
	if err != nil {
		w.refuse(object, err)
		return
	}
	held := policy.New(w.options.Base, document)
	w.options.Log.Info("policy in force", "configmap", w.name(), "version", object.ResourceVersion, "enforces", held.Enforces())
	w.good = true
	w.hold(held, Status{State: Read, Version: object.ResourceVersion, InForce: object.ResourceVersion})
}

// Parse reads the policy out of a ConfigMap.
func Parse(object *corev1.ConfigMap) (*policy.Document, error) {
	var others []string
	for _, key := range slices.Sorted(maps.Keys(object.Data)) {
		if key != policy.ConfigMapKey {
			others = append(others, key)
		}
	}
	others = append(others, slices.Sorted(maps.Keys(object.BinaryData))...)
	text, there := object.Data[policy.ConfigMapKey]
	switch {
	case !there:
		return nil, &policy.FieldError{Found: fmt.Sprintf("a ConfigMap with the keys %v", others), Want: "the key " + policy.ConfigMapKey}
	case len(others) > 0:
		return nil, &policy.FieldError{Found: "a ConfigMap that has " + strings.Join(others, ", ") + " beside it", Want: "no key but " + policy.ConfigMapKey}
	}
	return policy.Parse([]byte(text))
}

// refuse leaves what was in force as it is: the last good policy, or the environment where
// there was none. A process that knows neither yet enforces nothing.
func (w *Watch) refuse(object *corev1.ConfigMap, err error) {
	status := Status{State: Refused, Version: object.ResourceVersion, InForce: w.status.InForce, Err: err}
	enforced := w.Current().Enforces()
	if w.Current().Why() == "" {
		w.options.Log.Error("the policy is wrong; what was in force stays so; mend it, `sickbay policy check` tells what is wrong",
			"configmap", w.name(), "version", object.ResourceVersion, "inForce", status.InForce, "error", err)
		w.hold(w.Current(), status)
	} else {
		w.options.Log.Error("the policy is wrong, and this process knows no earlier one; nothing is enforced until it is mended; `sickbay policy check` tells what is wrong",
			"configmap", w.name(), "version", object.ResourceVersion, "error", err)
		enforced = policy.New(w.options.Base, nil).Enforces()
		w.hold(policy.Held(w.options.Base, "the ConfigMap "+w.name()+" is wrong"), status)
	}
	if w.options.Events && enforced {
		// Observing changes nothing in the cluster, and an Event is something in it.
		go w.tell(object.DeepCopy(), err)
	}
}

// gone keeps the last good policy: that nobody wants it any more can't be told from a
// slip of the hand.
func (w *Watch) gone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.good {
		w.options.Log.Info("no policy; the environment holds", "configmap", w.name())
		w.hold(policy.New(w.options.Base, nil), Status{State: None})
		return
	}
	w.options.Log.Error("the policy was deleted; the last good one stays in force until this process ends; put it back, or restart Sickbay to go by the environment",
		"configmap", w.name(), "inForce", w.status.InForce)
	w.hold(w.Current(), Status{State: Deleted, InForce: w.status.InForce, Err: errors.New("it was deleted")})
}

// failed takes in that the ConfigMap can't be read, and says so once.
func (w *Watch) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	forbidden := apierrors.IsForbidden(err)
	if said := fmt.Sprint(verb, forbidden); w.broken != said {
		w.broken = said
		remedy := "tried again until it works"
		if forbidden {
			remedy = "apply deploy/base: grant the service account the verbs list and watch on this ConfigMap"
		}
		w.options.Log.Error("the policy can't be read; what is in force stays so", "configmap", w.name(), "verb", verb, "error", err, "remedy", remedy)
	}
	if !forbidden {
		return
	}
	status := Status{State: Unreadable, Version: w.status.Version, InForce: w.status.InForce, Err: err}
	if w.good || w.Current().Why() == "" || w.status.State == Refused {
		w.hold(w.Current(), status)
		return
	}
	w.hold(policy.New(w.options.Base, nil), status)
}

// hold puts a policy in force.
func (w *Watch) hold(held *policy.InForce, status Status) {
	w.held.Store(held)
	w.status = status
	select {
	case <-w.known:
	default:
		close(w.known)
	}
}

func (w *Watch) name() string { return w.options.Namespace + "/" + policy.ConfigMapName }

// tellLimit bounds the call for an Event.
const tellLimit = 10 * time.Second

// tell writes an Event on the ConfigMap. One per version, by its name: several processes
// find the same.
func (w *Watch) tell(object *corev1.ConfigMap, wrong error) {
	ctx, cancel := context.WithTimeout(context.Background(), tellLimit)
	defer cancel()
	now := metav1.Now()
	_, err := w.options.Kubernetes.CoreV1().Events(object.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: policy.ConfigMapName + "." + object.ResourceVersion},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: object.Namespace, Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: "PolicyRefused", Message: message(wrong), Source: corev1.EventSource{Component: "sickbay"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.options.Log.Warn("no Event tells that the policy is wrong", "configmap", w.name(), "error", err)
	}
}

// message is what is wrong, as an Event may hold it.
func message(wrong error) string {
	text := "the policy is wrong and isn't in force: " + strings.ReplaceAll(wrong.Error(), "\n", "; ")
	if runes := []rune(text); len(runes) > 900 {
		text = string(runes[:900]) + "…"
	}
	return text
}

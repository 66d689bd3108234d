package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// A watch Pod has a claim with admin access for all devices of one driver on its node,
// so that the kubelet reports on those too that no tenant holds. Poking it has the
// kubelet read their health anew: a kubelet evaluates health whenever it syncs a Pod,
// which without a change it does every minute or so, and any change of the spec makes
// it sync at once. spec.activeDeadlineSeconds is one that a Pod may be given, and that
// may be lowered, while it runs. status.observedGeneration then tells when what the
// status says was computed after that change.

// WatchLabel marks watch Pods. Its value is the driver.
const WatchLabel = "sickbay.dev/watch"

const (
	// firstDeadline is what the first poke of a Pod sets, 63 years: a DaemonSet's
	// template can't have a deadline. Below lastDeadline a Pod isn't poked any more,
	// so that no poke ever ends it.
	firstDeadline int64 = 2_000_000_000
	lastDeadline  int64 = 1_000_000_000
	// pokeLimit bounds the wait for a kubelet's answer. A kubelet that is well takes
	// less than a second.
	pokeLimit = 3 * time.Second
	// pokeTries is how often a poke is tried that another one comes before.
	pokeTries = 3
)

// ErrNotPoked is wrapped where a Pod is left alone: it isn't a watch Pod of ours that
// runs, or it has been poked as often as it can be.
var ErrNotPoked = errors.New("not poked")

// ErrNoAnswer is wrapped where a kubelet was asked and didn't answer in time.
var ErrNoAnswer = errors.New("didn't answer")

// ErrPokedMeanwhile is wrapped where somebody else changed the Pod's spec first.
var ErrPokedMeanwhile = errors.New("somebody else was first")

// Poker pokes watch Pods, in one namespace and nowhere else.
type Poker struct {
	client    kubernetes.Interface
	namespace string
	limit     time.Duration
	pokeable
}

// pokeable are the Pods that are poked: those with a label, which a controller of a kind
// makes anew if they end.
type pokeable struct {
	// what they are called, the label and the kind of the controller.
	what, label, owner string
	// component of deploy/ grants it.
	component string
}

var (
	watchPods = pokeable{what: "watch Pod", label: WatchLabel, owner: "DaemonSet", component: "watch"}
	// The Pods that have a device through an attempt at recovery are poked alike.
	holdPods = pokeable{what: "Pod", label: LabelAttempt, owner: "Job", component: "enforce"}
)

// NewPoker returns nil without a namespace: there are no watch Pods then.
func NewPoker(client kubernetes.Interface, namespace string) *Poker {
	if namespace == "" {
		return nil
	}
	return &Poker{client: client, namespace: namespace, limit: pokeLimit, pokeable: watchPods}
}

// newHoldPoker pokes the Pods of attempts at recovery.
func newHoldPoker(client kubernetes.Interface, namespace string) *Poker {
	return &Poker{client: client, namespace: namespace, limit: pokeLimit, pokeable: holdPods}
}

// Poked is what came of poking the watch Pods that report on a device.
type Poked struct {
	// Acknowledged are the UIDs of the Pods whose entries the kubelet computed after
	// it was asked.
	Acknowledged []string
	// Says tells in words how it went, or why nobody was poked.
	Says string
}

// Device pokes the watch Pods of the device's driver on its node, and returns when
// their kubelet has answered, or after a few seconds. A nil Poker pokes nobody.
func (p *Poker) Device(ctx context.Context, key device.Key, node string) Poked {
	switch {
	case p == nil || key.Path() != device.PathDRA:
		return Poked{}
	case node == "":
		return Poked{Says: "none: the device is on no one node"}
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	pods, err := p.pods(ctx, labels.Set{WatchLabel: key.Driver}, fields.OneTermEqualSelector("spec.nodeName", node))
	switch {
	case err != nil:
		return Poked{Says: fmt.Sprintf("failed: %v", err)}
	case len(pods) == 0:
		return Poked{Says: fmt.Sprintf("none: no watch Pod of driver %s runs on node %s", key.Driver, node)}
	}
	failures := make([]error, len(pods))
	var work sync.WaitGroup
	for i := range pods {
		work.Go(func() { failures[i] = p.acknowledged(ctx, &pods[i]) })
	}
	work.Wait()
	var poked Poked
	for i, pod := range pods {
		if failures[i] == nil {
			poked.Acknowledged = append(poked.Acknowledged, string(pod.UID))
		}
	}
	if err := errors.Join(failures...); err != nil {
		poked.Says = "failed: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	} else {
		poked.Says = fmt.Sprintf("acknowledged within %s", time.Since(began).Round(10*time.Millisecond))
	}
	return poked
}

// Reporting are the watch Pods of all nodes that report on devices.
func (p *Poker) Reporting(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := p.pods(ctx, nil, fields.Everything())
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return len(c.AllocatedResourcesStatus) > 0
		})
	}), err
}

// pods lists watch Pods.
func (p *Poker) pods(ctx context.Context, labelled labels.Set, selected fields.Selector) ([]corev1.Pod, error) {
	selector := WatchLabel
	if len(labelled) > 0 {
		selector = labelled.String()
	}
	var pods []corev1.Pod
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return p.client.CoreV1().Pods(p.namespace).List(ctx, o)
	}).EachListItem(ctx, metav1.ListOptions{LabelSelector: selector, FieldSelector: selected.String()}, func(o runtime.Object) error {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, *pod)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the watch Pods in namespace %s: %w", p.namespace, err)
	}
	return pods, nil
}

// hold pokes a Pod and waits until its kubelet has taken that in, or for a few seconds.
func (p *Poker) hold(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	return p.acknowledged(ctx, pod)
}

// acknowledged pokes a Pod and waits until its kubelet has taken that in.
func (p *Poker) acknowledged(ctx context.Context, pod *corev1.Pod) error {
	generation, err := p.Poke(ctx, pod)
	for try := 1; errors.Is(err, ErrPokedMeanwhile) && try < pokeTries; try++ {
		// That poke may have been answered before this look began.
		var again *corev1.Pod
		if again, err = p.read(ctx, pod); err == nil {
			generation, err = p.Poke(ctx, again)
		}
	}
	if err != nil {
		return err
	}
	pause := 25 * time.Millisecond
	for {
		now, err := p.read(ctx, pod)
		if err == nil && now.Status.ObservedGeneration >= generation {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("the kubelet of node %s %w for Pod %s/%s within %s", pod.Spec.NodeName, ErrNoAnswer, pod.Namespace, pod.Name, p.limit)
		case <-timer.C:
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
}

// read reads the Pod anew, and not another one that has its name by now.
func (p *Poker) read(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	now, err := p.client.CoreV1().Pods(p.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get %s %s/%s: %w", p.what, p.namespace, pod.Name, err)
	}
	if now.UID != pod.UID {
		return nil, fmt.Errorf("%s %s/%s was made anew", p.what, p.namespace, pod.Name)
	}
	return now, nil
}

// operation is one step of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Poke has the kubelet of a watch Pod read the health of its devices anew, and returns
// the generation that the Pod's status has to reach until it has. It doesn't wait for
// that.
func (p *Poker) Poke(ctx context.Context, pod *corev1.Pod) (generation int64, err error) {
	deadline, err := p.next(pod)
	if err != nil {
		return 0, err
	}
	// Two that poke at once would both set the same deadline, and the later would take
	// the answer to the earlier for its own.
	patch, err := json.Marshal([]operation{
		{"test", "/metadata/uid", pod.UID},
		{"test", "/metadata/generation", pod.Generation},
		{"add", "/spec/activeDeadlineSeconds", deadline},
	})
	if err != nil {
		return 0, fmt.Errorf("poke %s %s/%s: %w", p.what, pod.Namespace, pod.Name, err)
	}
	poked, err := p.client.CoreV1().Pods(p.namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return 0, fmt.Errorf("poke %s %s/%s: %w; deploy/components/%s grants it", p.what, pod.Namespace, pod.Name, err, p.component)
	case apierrors.IsInvalid(err):
		return 0, fmt.Errorf("poke %s %s/%s: %w: %w", p.what, pod.Namespace, pod.Name, ErrPokedMeanwhile, err)
	case err != nil:
		return 0, fmt.Errorf("poke %s %s/%s: %w", p.what, pod.Namespace, pod.Name, err)
	}
	return poked.Generation, nil
}

// next is the deadline that a poke gives the Pod.
func (p *Poker) next(pod *corev1.Pod) (int64, error) {
	not := func(why string) (int64, error) {
		return 0, fmt.Errorf("%s %s/%s is %w: %s", p.what, pod.Namespace, pod.Name, ErrNotPoked, why)
	}
	owner := metav1.GetControllerOf(pod)
	switch deadline := pod.Spec.ActiveDeadlineSeconds; {
	case pod.Namespace != p.namespace:
		return not("it isn't in namespace " + p.namespace)
	case pod.Labels[p.label] == "":
		return not("it has no label " + p.label)
	case owner == nil || owner.Kind != p.owner:
		// Whoever made it by hand may mean its deadline.
		return not("no " + p.owner + " owns it")
	case pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning:
		return not("it doesn't run")
	case deadline == nil:
		return firstDeadline, nil
	case *deadline <= lastDeadline:
		return not(fmt.Sprintf("its deadline is down to %d s; delete it, and its %s makes another", *deadline, p.owner))
	default:
		return *deadline - 1, nil
	}
}

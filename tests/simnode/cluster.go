package simnode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// DefaultDriver is the DRA driver of pools that name none, and the name of
	// the DeviceClass that selects its devices.
	DefaultDriver = "gpu.example.com"

	// leaseNamespace and leaseSeconds are the kubelet's (KEP-589).
	leaseNamespace = "kube-node-lease"
	leaseSeconds   = 40

	// podWorkers write Pod status side by side, as many kubelets would.
	podWorkers = 16
	// nodeWorkers register nodes and renew their Leases.
	nodeWorkers = 16
)

// Options set up a simulation. The zero value is useful.
type Options struct {
	// Driver is the DRA driver of pools that name none. Default DefaultDriver.
	Driver string
	// HeartbeatEvery is the time between two renewals of a node's Lease.
	// Default 10 s, as the kubelet.
	HeartbeatEvery time.Duration
	// Seed decides the random order of health entries. Default 1.
	Seed uint64
}

// Cluster is a set of simulated nodes on one API server.
type Cluster struct {
	opts    Options
	client  kubernetes.Interface
	version string // "v1.36.3", the kubelet version that nodes claim

	podLister   corelisters.PodLister
	claimLister resourcelisters.ResourceClaimLister
	podQueue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	heartbeats  *heartbeats

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex // guards everything below and the fields of nodes and pods
	order *rand.Rand // of health entries
	nodes map[string]*node
	pods  map[types.NamespacedName]*pod
	names int // counter behind Pod and host addresses
}

// Start runs a simulation until the test ends.
func Start(t testing.TB, config *rest.Config, opts Options) *Cluster {
	t.Helper()
	c, err := Run(t.Context(), config, opts)
	if err != nil {
		t.Fatalf("start simulated nodes: %v", err)
	}
	t.Cleanup(c.Stop)
	return c
}

// Run runs a simulation until Stop. ctx bounds the start only. It creates the
// DeviceClass of the driver if there is none.
func Run(ctx context.Context, config *rest.Config, opts Options) (*Cluster, error) {
	if opts.Driver == "" {
		opts.Driver = DefaultDriver
	}
	if opts.HeartbeatEvery == 0 {
		opts.HeartbeatEvery = 10 * time.Second
	}
	if opts.Seed == 0 {
		opts.Seed = 1
	}
	config = rest.CopyConfig(config)
	// A thousand heartbeats cost the API server half as much this way.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the API server's version: %w", err)
	}
	c := &Cluster{
		opts:    opts,
		client:  client,
		version: version.GitVersion,
		order:   rand.New(rand.NewPCG(opts.Seed, opts.Seed)),
		nodes:   map[string]*node{},
		pods:    map[types.NamespacedName]*pod{},
		podQueue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](20*time.Millisecond, 2*time.Second)),
	}
	if err := c.createDeviceClass(ctx, opts.Driver); err != nil {
		return nil, err
	}

	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, claims := factory.Core().V1().Pods(), factory.Resource().V1().ResourceClaims()
	c.podLister, c.claimLister = pods.Lister(), claims.Lister()
	watched, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueuePod,
		UpdateFunc: func(_, pod any) { c.enqueuePod(pod) },
		DeleteFunc: c.enqueuePod,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	claims.Informer() // registers it with the factory
	factory.StartWithContext(background)
	c.running.Go(func() { <-background.Done(); factory.Shutdown(); c.podQueue.ShutDown() })
	if !cache.WaitForCacheSync(ctx.Done(), watched.HasSynced, claims.Informer().HasSynced) {
		c.Stop()
		return nil, fmt.Errorf("list Pods and claims: %w", context.Cause(ctx))
	}
	for range podWorkers {
		c.running.Go(func() { c.workPods(background) })
	}
	c.heartbeats = newHeartbeats(c.opts.HeartbeatEvery)
	c.running.Go(func() { c.heartbeats.run(background, c.beat) })
	return c, nil
}

// Stop ends heartbeats and status writes. The objects stay in the API server,
// as they do when nodes lose power.
func (c *Cluster) Stop() {
	c.cancel()
	c.running.Wait()
}

func (c *Cluster) createDeviceClass(ctx context.Context, driver string) error {
	_, err := c.client.ResourceV1().DeviceClasses().Create(ctx, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)},
		}}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the DeviceClass %s: %w", driver, err)
	}
	return nil
}

// AwaitPod waits until the Pod, as the API server has it, satisfies a condition
// and returns it. A Pod that does not exist is passed as nil.
func (c *Cluster) AwaitPod(ctx context.Context, namespace, name string, until func(*corev1.Pod) bool) (*corev1.Pod, error) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			pod, err = nil, nil
		}
		if err == nil && until(pod) {
			return pod, nil
		}
		select {
		case <-ctx.Done():
			return pod, fmt.Errorf("wait for Pod %s/%s: %w: %s", namespace, name, context.Cause(ctx), describe(pod))
		case <-ticker.C:
		}
	}
}

// Running is a condition for AwaitPod.
func Running(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == corev1.PodRunning }

// Gone is a condition for AwaitPod.
func Gone(pod *corev1.Pod) bool { return pod == nil }

// describe says why a Pod is not where a test wants it.
func describe(pod *corev1.Pod) string {
	if pod == nil {
		return "it does not exist"
	}
	text := fmt.Sprintf("phase %s on node %q", pod.Status.Phase, pod.Spec.NodeName)
	for _, condition := range pod.Status.Conditions {
		if condition.Status == corev1.ConditionFalse && condition.Message != "" {
			text += fmt.Sprintf("; %s: %s", condition.Type, condition.Message)
		}
	}
	return text
}

// each runs do for every item with a bounded number at a time and returns the
// first error.
func each[T any](ctx context.Context, items []T, limit int, do func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	feed := make(chan T)
	var workers sync.WaitGroup
	for range min(limit, len(items)) {
		workers.Go(func() {
			for item := range feed {
				if err := do(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		feed <- item
	}
	close(feed)
	workers.Wait()
	return context.Cause(ctx)
}

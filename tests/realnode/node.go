package realnode

// This file is the life of a node: what it is started with, its start, its
// stop, and the kills and restarts in between.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

// The names of the node's parts in its stack: for Stack.Log and the like.
const (
	Kubelet    = "kubelet"
	Containerd = "containerd"
)

const (
	startLimit   = 90 * time.Second
	podsGoneIn   = 40 * time.Second
	defaultName  = "real-1"
	pollInterval = 100 * time.Millisecond
)

// Options say what a node is like. The zero value is a node of the stack's
// version.
type Options struct {
	// Name is the Node's name. Default "real-1".
	Name string
	// Kubelet is the kubelet's version, as in stack.Options.Kubernetes. Default
	// is the stack's own; an older one is the skew that Kubernetes allows.
	Kubelet string
	// FeatureGates are set on the kubelet, over the node's own choice, which is
	// DRANodeAllocatableResources.
	FeatureGates map[string]bool
	// SyncFrequency is the kubelet's: how often, with half as much again of
	// jitter, it looks at a Pod without a cause. Health that timed out shows
	// then. Zero leaves it to the kubelet: one minute.
	SyncFrequency time.Duration
	// StatusFrequency is how often the kubelet writes a changed Node status, for
	// example a device less on offer. Zero leaves it to the kubelet: 10 s.
	StatusFrequency time.Duration
	// Labels are put on the Node.
	Labels map[string]string
	// Logf receives what happens. Start sets it to the test's Logf.
	Logf func(format string, args ...any)
}

// Node is a running node.
type Node struct {
	opts     Options
	stack    *stack.Stack
	client   kubernetes.Interface
	programs stack.Binaries
	own      map[string]string // our own programs by name
	machine  *machine
	services *services

	mu      sync.Mutex
	started []string // parts on the node, in the order of their start
	stopped bool
}

// Start joins a node to a stack for a test and takes it away when the test
// ends. A test that is not root is skipped.
func Start(t testing.TB, s *stack.Stack, opts Options) *Node {
	t.Helper()
	SkipUnlessRoot(t)
	if opts.Logf == nil {
		opts.Logf = t.Logf
	}
	n, err := Run(t.Context(), s, opts)
	if err != nil {
		t.Fatalf("start the node: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Errorf("stop the node: %v", err)
		}
	})
	return n
}

// SkipUnlessRoot skips a test that needs a real node where there can't be one.
func SkipUnlessRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a real kubelet makes mounts, cgroups and network interfaces; run `sudo make kubelet`")
	}
}

// Run builds what is missing and joins a node to a stack. ctx bounds the start
// only; the node runs until Stop.
func Run(ctx context.Context, s *stack.Stack, opts Options) (_ *Node, err error) {
	if opts.Name == "" {
		opts.Name = defaultName
	}
	if opts.Kubelet == "" {
		opts.Kubelet = s.KubernetesVersion()
	}
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client of the stack: %w", err)
	}
	parts, err := stack.NodeParts(opts.Kubelet)
	if err != nil {
		return nil, err
	}
	n := &Node{opts: opts, stack: s, client: client}
	if n.programs, err = stack.Build(ctx, nil, parts...); err != nil {
		return nil, err
	}
	if n.machine, err = takeMachine(ctx, opts.Logf); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
		}
	}()
	begin := time.Now()
	if n.own, err = buildOwn(ctx, "fakedriver/cmd/fakedriver", "fakeplugin/cmd/fakeplugin", "realnode/pause"); err != nil {
		return nil, err
	}
	built := time.Since(begin)
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not started within %s", startLimit))
	defer cancel()
	if err := n.startRuntime(ctx); err != nil {
		return nil, err
	}
	apiServer := strings.TrimPrefix(s.APIServerURL(), "https://")
	if n.services, err = startServices(client, apiServer, opts.Logf); err != nil {
		return nil, err
	}
	if err := n.startKubelet(ctx); err != nil {
		return nil, err
	}
	if err := n.await(ctx, "the Node is Ready", n.ready); err != nil {
		return nil, err
	}
	if err := n.label(ctx); err != nil {
		return nil, err
	}
	opts.Logf("node %s: kubelet %s ready after %.1fs (of it %.1fs for own programs)",
		opts.Name, opts.Kubelet, time.Since(begin).Seconds(), built.Seconds())
	return n, nil
}

// Name is the Node's name.
func (n *Node) Name() string { return n.opts.Name }

// Client is a cluster admin's client of the stack.
func (n *Node) Client() kubernetes.Interface { return n.client }

// KubeletVersion is what runs, for example "1.36.3".
func (n *Node) KubeletVersion() string { return n.opts.Kubelet }

// PodResourcesSocket is the kubelet's podresources API.
func (n *Node) PodResourcesSocket() string {
	return filepath.Join(n.kubeletRoot(), "pod-resources", "kubelet.sock")
}

// Dir is the node's directory.
func (n *Node) Dir() string { return n.machine.dir }

// ready says what is missing until the Node can run Pods.
func (n *Node) ready(ctx context.Context) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.opts.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			// The node lifecycle controller takes this taint away a moment later;
			// until then Pods stay Pending.
			for _, taint := range node.Spec.Taints {
				if taint.Key == corev1.TaintNodeNotReady {
					return fmt.Errorf("node %s still has the taint %s", n.opts.Name, taint.Key)
				}
			}
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready: %+v", n.opts.Name, node.Status.Conditions)
}

func (n *Node) label(ctx context.Context) error {
	if len(n.opts.Labels) == 0 {
		return nil
	}
	patch, err := mergePatch(map[string]any{"metadata": map[string]any{"labels": n.opts.Labels}})
	if err != nil {
		return err
	}
	if _, err := n.client.CoreV1().Nodes().Patch(ctx, n.opts.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label node %s: %w", n.opts.Name, err)
	}
	return nil
}

// KillKubelet ends the kubelet as kill -9 does. Containers run on.
func (n *Node) KillKubelet() error { return n.stack.KillPart(Kubelet) }

// StopKubelet ends the kubelet with SIGTERM. Containers run on.
func (n *Node) StopKubelet(ctx context.Context) error { return n.stack.StopPart(ctx, Kubelet) }

// StartKubelet starts a kubelet that was killed or stopped, and returns when it
// answers.
func (n *Node) StartKubelet(ctx context.Context) error { return n.stack.StartPart(ctx, Kubelet) }

// KillContainerd ends containerd as kill -9 does. Containers run on.
func (n *Node) KillContainerd() error { return n.stack.KillPart(Containerd) }

// StartContainerd starts a containerd that was killed.
func (n *Node) StartContainerd(ctx context.Context) error {
	return n.stack.StartPart(ctx, Containerd)
}

// Stop takes the node away: its Pods through the API, then drivers and plugins,
// kubelet and containerd, the Node object, and all that is left on the machine.
// Pods go first, or a Pod whose driver is gone hangs in Terminating. A second
// Stop does nothing.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	if n.stopped || n.machine == nil {
		n.mu.Unlock()
		return nil
	}
	n.stopped = true
	started := n.started
	n.mu.Unlock()

	var failures []error
	if n.stack.PID(Kubelet) != 0 {
		failures = append(failures, n.removePods(ctx))
	}
	for i := len(started) - 1; i >= 0; i-- {
		failures = append(failures, n.stack.StopPart(ctx, started[i]))
	}
	if n.services != nil {
		n.services.stop()
	}
	if err := n.client.CoreV1().Nodes().Delete(ctx, n.opts.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		failures = append(failures, fmt.Errorf("delete node %s: %w", n.opts.Name, err))
	}
	return errors.Join(append(failures, n.machine.release())...)
}

// removePods deletes the Pods of the node and waits until they are gone. Those
// that a controller makes anew meanwhile are deleted again.
func (n *Node) removePods(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, podsGoneIn, fmt.Errorf("not within %s", podsGoneIn))
	defer cancel()
	patch, err := mergePatch(map[string]any{"spec": map[string]any{"unschedulable": true}})
	if err != nil {
		return err
	}
	if _, err := n.client.CoreV1().Nodes().Patch(ctx, n.opts.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cordon node %s: %w", n.opts.Name, err)
	}
	grace := int64(1)
	return n.await(ctx, "the node's Pods are gone", func(ctx context.Context) error {
		pods, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.opts.Name})
		if err != nil {
			return err
		}
		var names []string
		for _, p := range pods.Items {
			names = append(names, p.Namespace+"/"+p.Name)
			if p.DeletionTimestamp != nil {
				continue
			}
			err := n.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if len(names) > 0 {
			return fmt.Errorf("still there: %v", names)
		}
		return nil
	})
}

// await asks until there is no error or ctx ends.
func (n *Node) await(ctx context.Context, what string, ask func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, err, context.Cause(ctx))
		}
	}
}

// startProcess runs a process of the node under the stack.
func (n *Node) startProcess(ctx context.Context, p stack.Process) error {
	n.mu.Lock()
	n.started = append(n.started, p.Name)
	n.mu.Unlock()
	return n.stack.StartProcess(ctx, p)
}

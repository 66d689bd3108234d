package simnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// StopAfterAnnotation makes a Pod's containers take that long, a Go duration,
// to end after SIGTERM; at most the Pod's grace period. Without it they end at
// once.
const StopAfterAnnotation = "simnode.sickbay.dev/stop-after"

// errNotYet keeps a Pod in the queue: something it needs isn't there yet.
var errNotYet = errors.New("not yet")

// pod is a Pod on one of our nodes as its kubelet knows it. Fields below mu of
// Cluster are guarded by it; writing orders the status writes of one Pod.
type pod struct {
	key types.NamespacedName
	uid types.UID

	writing sync.Mutex
	written string // the status last accepted, in canonical order; under writing
	seen    int64  // the generation that it was of; under writing
	sealed  bool   // the last word was said and accepted; under writing

	node       *node
	object     *corev1.Pod
	started    metav1.Time
	readySince metav1.Time // when readiness last changed
	address    string
	admitted   bool
	failure    string                  // why it was not admitted, for good
	claims     map[string][]allocation // by the Pod's claim name
	containers map[string]*container
	phase      corev1.PodPhase
	finished   bool // terminal or being deleted: nothing runs and nothing is prepared
}

// allocation is one device of a claim.
type allocation struct {
	claimUID             types.UID
	request              string
	driver, pool, device string
}

// container is what a kubelet remembers of a container.
type container struct {
	id       string
	restarts int32
	state    corev1.ContainerState
	last     corev1.ContainerState
	plugins  []pluginShare
}

// pluginShare is what a container has of one device plugin.
type pluginShare struct {
	plugin *plugin
	ids    []string
}

func (c *Cluster) enqueuePod(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if p, ok := object.(*corev1.Pod); ok && p.Spec.NodeName != "" {
		c.podQueue.Add(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	}
}

// enqueueNode looks at every Pod bound to a node again.
func (c *Cluster) enqueueNode(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, p := range c.pods {
		if p.node == n {
			c.podQueue.Add(key)
		}
	}
}

func (c *Cluster) workPods(ctx context.Context) {
	for {
		key, quit := c.podQueue.Get()
		if quit {
			return
		}
		again, err := c.syncPod(ctx, key)
		switch {
		case err != nil && ctx.Err() == nil:
			c.podQueue.AddRateLimited(key)
		case again > 0:
			c.podQueue.Forget(key)
			c.podQueue.AddAfter(key, again)
		default:
			c.podQueue.Forget(key)
		}
		c.podQueue.Done(key)
	}
}

// syncPod does for one Pod what a kubelet's Pod worker does. It asks to be
// called again after a time, or soon if it returns an error.
func (c *Cluster) syncPod(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	object, err := c.podLister.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	p := c.track(object)
	if p == nil {
		return 0, nil
	}
	if object.DeletionTimestamp != nil {
		return c.terminate(ctx, p)
	}
	if err := c.admit(ctx, p); err != nil {
		return 0, err
	}
	_, err = c.writePod(ctx, p, false)
	return 0, err
}

// track returns what is known of a Pod, or nil if it is none of ours, its node
// is out, or it had ended before we saw it.
func (c *Cluster) track(object *corev1.Pod) *pod {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[object.Spec.NodeName]
	p := c.pods[key]
	if p != nil && (p.uid != object.UID || p.node != n) {
		c.forget(key)
		p = nil
	}
	if n == nil {
		return nil
	}
	if p == nil {
		p = &pod{
			key: key, uid: object.UID, node: n, started: metav1.Now(), readySince: metav1.Now(),
			claims: map[string][]allocation{}, containers: map[string]*container{}, phase: corev1.PodPending,
		}
		c.pods[key] = p
		if phase := object.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
			p.finished, p.phase = true, phase
		}
	}
	p.object = object
	if n.out {
		return nil
	}
	return p
}

// forget drops a Pod and gives its device-plugin IDs back. The caller holds
// Cluster.mu.
func (c *Cluster) forget(key types.NamespacedName) {
	p := c.pods[key]
	if p == nil {
		return
	}
	for _, plugin := range p.node.plugins {
		plugin.giveBack(p)
	}
	delete(c.pods, key)
}

// admit prepares a Pod's claims, gives it device-plugin IDs and starts its
// containers.
func (c *Cluster) admit(ctx context.Context, p *pod) error {
	c.mu.Lock()
	object, done := p.object, p.admitted || p.finished
	c.mu.Unlock()
	if done {
		return nil
	}
	claims, err := c.claimsOf(ctx, object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, devices := range claims {
		for _, a := range devices {
			if !p.node.driverHere(a.driver, a.pool) {
				return fmt.Errorf("prepare the claims of Pod %s: driver %s is not registered: %w", p.key, a.driver, errNotYet)
			}
		}
	}
	p.claims = claims
	for i := range object.Spec.Containers {
		spec := &object.Spec.Containers[i]
		shares, ok := p.takePlugins(spec)
		if !ok {
			p.fail("UnexpectedAdmissionError")
			return nil
		}
		c.names++
		p.containers[spec.Name] = &container{
			id:      fmt.Sprintf("simnode://%s-%d", p.uid, c.names),
			plugins: shares,
			state:   corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}
	}
	p.address = c.nextAddress("10.128")
	p.admitted, p.phase = true, corev1.PodRunning
	return nil
}

// takePlugins gets the IDs that a container asks of the node's device plugins.
func (p *pod) takePlugins(spec *corev1.Container) ([]pluginShare, bool) {
	var shares []pluginShare
	for name, quantity := range spec.Resources.Requests {
		plugin := p.node.plugin(name)
		if plugin == nil || quantity.IsZero() {
			continue
		}
		ids := plugin.take(p, int(quantity.Value()))
		if ids == nil {
			return nil, false
		}
		shares = append(shares, pluginShare{plugin: plugin, ids: ids})
	}
	return shares, true
}

// fail ends a Pod that the kubelet refuses (kubelet 1.36.3,
// pkg/kubelet/lifecycle/predicate.go: UnexpectedAdmissionError).
func (p *pod) fail(reason string) {
	for _, plugin := range p.node.plugins {
		plugin.giveBack(p)
	}
	p.containers = map[string]*container{}
	p.failure, p.phase, p.finished = reason, corev1.PodFailed, true
}

// claimsOf reads the allocations of a Pod's claims. A claim must be allocated
// and reserved for the Pod, as the kubelet checks before it prepares one
// (kubelet 1.36.3, pkg/kubelet/cm/dra/manager.go: prepareResources).
func (c *Cluster) claimsOf(ctx context.Context, object *corev1.Pod) (map[string][]allocation, error) {
	claims := map[string][]allocation{}
	for i := range object.Spec.ResourceClaims {
		podClaim := &object.Spec.ResourceClaims[i]
		name, mustOwn, err := resourceclaim.Name(object, podClaim)
		if err != nil {
			return nil, fmt.Errorf("claim %s of Pod %s/%s: %v: %w", podClaim.Name, object.Namespace, object.Name, err, errNotYet)
		}
		if name == nil {
			continue // no claim was needed
		}
		claim, err := c.claimLister.ResourceClaims(object.Namespace).Get(*name)
		if err == nil && !readyFor(claim, object) {
			// The watch may be behind what the scheduler wrote before it bound.
			claim, err = c.client.ResourceV1().ResourceClaims(object.Namespace).Get(ctx, *name, metav1.GetOptions{})
		}
		if err != nil {
			return nil, fmt.Errorf("claim %s of Pod %s/%s: %w", *name, object.Namespace, object.Name, err)
		}
		if mustOwn {
			if err := resourceclaim.IsForPod(object, claim, false); err != nil {
				return nil, err
			}
		}
		if !readyFor(claim, object) {
			return nil, fmt.Errorf("claim %s is not allocated to Pod %s/%s: %w", *name, object.Namespace, object.Name, errNotYet)
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			claims[podClaim.Name] = append(claims[podClaim.Name], allocation{
				claimUID: claim.UID, request: result.Request,
				driver: result.Driver, pool: result.Pool, device: result.Device,
			})
		}
	}
	return claims, nil
}

func readyFor(claim *resourceapi.ResourceClaim, object *corev1.Pod) bool {
	return claim.Status.Allocation != nil && resourceclaim.IsReservedForPod(object, claim, false)
}

// terminate ends a Pod that has a deletion timestamp: containers stop, claims
// are unprepared, the final status is written, and the object is deleted with
// grace period 0. Without its driver a Pod hangs with its containers terminated
// and its entries still there (seen on kubelet 1.36.3).
func (c *Cluster) terminate(ctx context.Context, p *pod) (again time.Duration, err error) {
	c.mu.Lock()
	left := time.Until(p.stopsAt())
	if left > 0 && !p.finished {
		c.mu.Unlock()
		return left, nil
	}
	p.stopContainers(0, "Completed")
	hanging := false
	for _, devices := range p.claims {
		for _, a := range devices {
			hanging = hanging || !p.node.driverHere(a.driver, a.pool)
		}
	}
	if !hanging {
		if !p.finished {
			p.phase = corev1.PodSucceeded
		}
		p.finished = true
	}
	c.mu.Unlock()

	if _, err := c.writePod(ctx, p, false); err != nil {
		return 0, err
	}
	if hanging {
		return 0, nil // DriverBack looks at the node's Pods again
	}
	now := int64(0)
	err = c.client.CoreV1().Pods(p.key.Namespace).Delete(ctx, p.key.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.uid},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, err
	}
	return 0, nil
}

// stopsAt is when the containers of a Pod that is being deleted have ended. The
// deletion timestamp lies a grace period after the request.
func (p *pod) stopsAt() time.Time {
	grace := time.Duration(0)
	if seconds := p.object.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	takes, err := time.ParseDuration(p.object.Annotations[StopAfterAnnotation])
	if err != nil {
		takes = 0
	}
	return p.object.DeletionTimestamp.Add(-grace).Add(min(takes, grace))
}

func (p *pod) stopContainers(exitCode int32, reason string) {
	for _, running := range p.containers {
		if running.state.Running != nil {
			running.state = terminated(running, exitCode, reason)
			p.readySince = metav1.Now()
		}
	}
}

func terminated(c *container, exitCode int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Reason: reason, StartedAt: c.state.Running.StartedAt,
		FinishedAt: metav1.Now(), ContainerID: c.id,
	}}
}

// Exit ends the containers of a Pod with an exit code and does what its restart
// policy says. Restarted containers keep their entries (seen on kubelet 1.36.3:
// a crash loop shows Unhealthy all along). A Pod that ends loses its DRA entries
// and keeps its device-plugin entries as they were (seen on kubelet 1.36.3 and
// 1.37.2: exit code 139 under restartPolicy Never).
func (c *Cluster) Exit(ctx context.Context, namespace, name string, exitCode int32) (*Write, error) {
	c.mu.Lock()
	p := c.pods[types.NamespacedName{Namespace: namespace, Name: name}]
	if p == nil || !p.admitted || p.finished {
		c.mu.Unlock()
		return nil, fmt.Errorf("end Pod %s/%s: it does not run on a simulated node", namespace, name)
	}
	reason := "Completed"
	if exitCode != 0 {
		reason = "Error"
	}
	policy := p.object.Spec.RestartPolicy
	if policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && exitCode != 0 {
		for _, restarted := range p.containers {
			restarted.last = terminated(restarted, exitCode, reason)
			restarted.restarts++
			c.names++
			restarted.id = fmt.Sprintf("simnode://%s-%d", p.uid, c.names)
			restarted.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		}
	} else {
		p.stopContainers(exitCode, reason)
		for _, plugin := range p.node.plugins {
			plugin.giveBack(p)
		}
		p.finished, p.phase = true, corev1.PodSucceeded
		if exitCode != 0 {
			p.phase = corev1.PodFailed
		}
	}
	c.mu.Unlock()
	return c.writePod(ctx, p, false)
}

// baseRequest strips the subrequest from "request/subrequest".
func baseRequest(request string) string {
	base, _, _ := strings.Cut(request, "/")
	return base
}

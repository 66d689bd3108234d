package simnode

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// writePod writes a Pod's status if it changed, or always. It returns nil
// without an error if nothing was to be written or the Pod is no more.
func (c *Cluster) writePod(ctx context.Context, p *pod, always bool) (*Write, error) {
	p.writing.Lock()
	defer p.writing.Unlock()

	// What has ended is not reported again, whatever becomes of its devices.
	if p.sealed {
		return nil, nil
	}
	c.mu.Lock()
	if p.node.out || p.node.deleted || !p.admitted && p.failure == "" {
		c.mu.Unlock()
		return nil, nil
	}
	status := p.status()
	canonical, err := json.Marshal(status)
	// A kubelet says when it has taken a change of the spec in, whatever comes of it (seen on
	// kubelet 1.36.3: within 0.1 s).
	if err == nil && string(canonical) == p.written && p.object.Generation == p.seen && !always {
		c.mu.Unlock()
		return nil, nil
	}
	c.shuffle(status)
	generation, finished := p.object.Generation, p.finished
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}

	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = generation
	}
	status.ObservedGeneration = generation
	patch, err := json.Marshal(map[string]any{
		// The kubelet's precondition: never the status of another Pod of the
		// same name (kubelet 1.36.3, pkg/util/pod/pod.go: PatchPodStatus).
		"metadata": map[string]any{"uid": p.uid},
		"status":   status,
	})
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	accepted, err := c.patchStatus(ctx, p, patch)
	if err != nil {
		// A kubelet tries again until it gets through.
		c.podQueue.AddRateLimited(p.key)
		return nil, fmt.Errorf("write the status of Pod %s: %w", p.key, err)
	}
	if accepted == nil {
		return nil, nil
	}
	p.written, p.seen, p.sealed = string(canonical), generation, finished
	return &Write{
		Pod: p.key, UID: p.uid, ResourceVersion: accepted.ResourceVersion, Sent: sent, Accepted: time.Now(),
	}, nil
}

// patchStatus returns the Pod as written, or nil if it is no more. The API
// server answers Conflict both when the UID is another one and when other
// writers were faster all the time; only the second is worth another try.
func (c *Cluster) patchStatus(ctx context.Context, p *pod, patch []byte) (*corev1.Pod, error) {
	pods := c.client.CoreV1().Pods(p.key.Namespace)
	for {
		accepted, err := pods.Patch(ctx, p.key.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if !apierrors.IsConflict(err) {
			return accepted, err
		}
		now, err := pods.Get(ctx, p.key.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != p.uid {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// status renders the Pod's status in a canonical order. The caller holds
// Cluster.mu.
func (p *pod) status() *corev1.PodStatus {
	if p.failure != "" {
		return &corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: p.failure, StartTime: &p.started,
			Message: "Pod was rejected: Allocate failed due to not enough healthy devices",
		}
	}
	status := &corev1.PodStatus{
		Phase: p.phase, StartTime: &p.started,
		HostIP: p.node.address, HostIPs: []corev1.HostIP{{IP: p.node.address}},
		PodIP: p.address, PodIPs: []corev1.PodIP{{IP: p.address}},
	}
	allRunning := true
	for _, name := range slices.Sorted(maps.Keys(p.containers)) {
		rendered := p.containerStatus(name)
		allRunning = allRunning && rendered.Ready
		status.ContainerStatuses = append(status.ContainerStatuses, rendered)
	}
	ready := corev1.ConditionFalse
	if allRunning {
		ready = corev1.ConditionTrue
	}
	for _, condition := range []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: ready},
		{Type: corev1.ContainersReady, Status: ready},
	} {
		condition.LastTransitionTime = p.started
		if condition.Type == corev1.PodReady || condition.Type == corev1.ContainersReady {
			condition.LastTransitionTime = p.readySince
		}
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

// containerStatus renders one container, with its health entries. Only regular
// containers have any.
func (p *pod) containerStatus(name string) corev1.ContainerStatus {
	known := p.containers[name]
	running := known.state.Running != nil
	status := corev1.ContainerStatus{
		Name: name, ContainerID: known.id, Ready: running, Started: &running,
		RestartCount: known.restarts, State: known.state, LastTerminationState: known.last,
	}
	for i := range p.object.Spec.Containers {
		spec := &p.object.Spec.Containers[i]
		if spec.Name != name {
			continue
		}
		status.Image, status.ImageID = spec.Image, spec.Image
		status.Resources = spec.Resources.DeepCopy()
		if len(spec.Resources.Requests) > 0 {
			status.AllocatedResources = spec.Resources.Requests.DeepCopy()
		}
		// A Pod that ended has its claims unprepared, and the kubelet then
		// knows no device of them (seen on kubelet 1.36.3 and 1.37.2: entries
		// null in the status that says Failed or Succeeded).
		if !p.finished {
			status.AllocatedResourcesStatus = p.claimEntries(spec)
		}
		status.AllocatedResourcesStatus = append(status.AllocatedResourcesStatus, known.pluginEntries()...)
	}
	return status
}

// claimEntries are the entries of a container's claims: one for each element of
// resources.claims, "claim:<name>" with all the claim's devices or
// "claim:<name>/<request>" with the request's (kubelet 1.36.3,
// pkg/kubelet/cm/dra/manager.go: UpdateAllocatedResourcesStatus). The DRA-backed
// claim of an extended resource is not in resources.claims and has none.
func (p *pod) claimEntries(spec *corev1.Container) []corev1.ResourceStatus {
	var entries []corev1.ResourceStatus
	for _, claim := range spec.Resources.Claims {
		entry := corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + claim.Name)}
		if claim.Request != "" {
			entry.Name += corev1.ResourceName("/" + claim.Request)
		}
		seen := map[corev1.ResourceID]bool{}
		for _, device := range p.claims[claim.Name] {
			if claim.Request != "" && baseRequest(device.request) != baseRequest(claim.Request) {
				continue
			}
			health := p.node.resourceHealth(device)
			if seen[health.ResourceID] {
				continue
			}
			seen[health.ResourceID] = true
			entry.Resources = append(entry.Resources, health)
		}
		if len(entry.Resources) > 0 {
			entries = append(entries, entry)
		}
	}
	return entries
}

// resourceHealth is the entry of one device.
func (n *node) resourceHealth(a allocation) corev1.ResourceHealth {
	health, message := n.healthOf(a.driver, a.pool, a.device)
	entry := corev1.ResourceHealth{ResourceID: n.resourceID(a), Health: health}
	if message != "" {
		entry.Message = &message
	}
	return entry
}

func (n *node) resourceID(a allocation) corev1.ResourceID {
	mode := CDINone
	if p, err := n.pool(a.driver + "/" + a.pool); err == nil {
		mode = p.spec.CDI
	}
	switch mode {
	case CDIDevice:
		return corev1.ResourceID(fmt.Sprintf("%s/gpu=%s", a.driver, a.device))
	case CDIClaim:
		return corev1.ResourceID(fmt.Sprintf("k8s.%s/claim=%s-%s", a.driver, a.claimUID, a.device))
	case CDIShared:
		return corev1.ResourceID(fmt.Sprintf("k8s.%s/claim=%s", a.driver, a.claimUID))
	}
	return corev1.ResourceID(strings.Join([]string{a.driver, a.pool, a.device}, "/"))
}

// pluginEntries are the entries of a container's device-plugin IDs.
func (c *container) pluginEntries() []corev1.ResourceStatus {
	var entries []corev1.ResourceStatus
	for _, share := range c.plugins {
		entry := corev1.ResourceStatus{Name: share.plugin.spec.Resource}
		for _, id := range share.ids {
			entry.Resources = append(entry.Resources, corev1.ResourceHealth{
				ResourceID: corev1.ResourceID(id), Health: share.plugin.healthOf(id),
			})
		}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b corev1.ResourceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return entries
}

// shuffle puts entries and their devices into a random order, which is what Go's
// map iteration makes of them in a kubelet (kubelet 1.36.3, the same functions).
// The caller holds Cluster.mu.
func (c *Cluster) shuffle(status *corev1.PodStatus) { shuffle(c.order, status) }

func shuffle(order *rand.Rand, status *corev1.PodStatus) {
	for i := range status.ContainerStatuses {
		entries := status.ContainerStatuses[i].AllocatedResourcesStatus
		order.Shuffle(len(entries), func(a, b int) { entries[a], entries[b] = entries[b], entries[a] })
		for _, entry := range entries {
			devices := entry.Resources
			order.Shuffle(len(devices), func(a, b int) { devices[a], devices[b] = devices[b], devices[a] })
		}
	}
}

package listing

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// podsAtOnce bounds the Pods that are read side by side.
const podsAtOnce = 8

// PodStatus is whether a Pod's containers are ready: a signal of its own, which
// says nothing of the health of the Pod's devices, as theirs says nothing of it.
type PodStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node,omitempty"`
	// Phase is status.phase. It is empty where the Pod couldn't be read or isn't
	// there any more.
	Phase string `json:"phase,omitempty"`
	// Missing says why there is no Phase.
	Missing    string            `json:"missing,omitempty"`
	Deleting   bool              `json:"deleting,omitempty"`
	Containers []ContainerStatus `json:"containers,omitempty"`
}

// ContainerStatus is one container's.
type ContainerStatus struct {
	Name     string `json:"name"`
	Ready    bool   `json:"ready"`
	Restarts int32  `json:"restarts"`
	// State is "Running", or the reason why it isn't.
	State string `json:"state,omitempty"`
}

// String is namespace/name.
func (p PodStatus) String() string { return p.Namespace + "/" + p.Name }

// ReadPods reads the Pods of holders live, in their order. One that is gone is
// told as such; one that can't be read becomes a problem too.
func ReadPods(ctx context.Context, client kubernetes.Interface, holders []Holder) (pods []PodStatus, problems []string) {
	pods = make([]PodStatus, len(holders))
	failures := make([]error, len(holders))
	slots := make(chan struct{}, podsAtOnce)
	var reads sync.WaitGroup
	for i, h := range holders {
		slots <- struct{}{}
		reads.Go(func() {
			defer func() { <-slots }()
			pods[i], failures[i] = readPod(ctx, client, h)
		})
	}
	reads.Wait()
	for _, err := range failures {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	return pods, problems
}

// ReadPod reads one Pod live.
func ReadPod(ctx context.Context, client kubernetes.Interface, namespace, name string) (PodStatus, error) {
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return PodStatus{}, err
	}
	return podStatus(pod), nil
}

func readPod(ctx context.Context, client kubernetes.Interface, h Holder) (PodStatus, error) {
	pod, err := client.CoreV1().Pods(h.Namespace).Get(ctx, h.Name, metav1.GetOptions{})
	missing := PodStatus{Namespace: h.Namespace, Name: h.Name, UID: h.UID}
	switch {
	case apierrors.IsNotFound(err), err == nil && string(pod.UID) != h.UID:
		missing.Missing = "the Pod is gone"
		return missing, nil
	case err != nil:
		missing.Missing = "it can't be read"
		return missing, fmt.Errorf("whether the containers of Pod %s are ready isn't known: %w", h, err)
	}
	return podStatus(pod), nil
}

func podStatus(pod *corev1.Pod) PodStatus {
	status := PodStatus{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName,
		Phase: string(pod.Status.Phase), Deleting: pod.DeletionTimestamp != nil,
	}
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		status.Containers = append(status.Containers, ContainerStatus{
			Name: c.Name, Ready: c.Ready, Restarts: c.RestartCount, State: stateOf(c.State),
		})
	}
	return status
}

func stateOf(state corev1.ContainerState) string {
	switch {
	case state.Running != nil:
		return "Running"
	case state.Waiting != nil && state.Waiting.Reason != "":
		return state.Waiting.Reason
	case state.Terminated != nil && state.Terminated.Reason != "":
		return state.Terminated.Reason
	case state.Terminated != nil:
		return "Terminated"
	}
	return "Waiting"
}

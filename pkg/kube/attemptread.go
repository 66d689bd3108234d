package kube

// This file reads what the Pods of an attempt say: the device's health, and how the gate's
// program ended.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

const (
	// maxReport bounds what a program says, in bytes; it goes into the case's state.
	maxReport = 1024
	// slowStart is after how long a Pod that is on its node and doesn't start is told of.
	slowStart = time.Minute
)

// holder is the Pod that has the device: the newest one that isn't over.
func (p *attempt) holder() *corev1.Pod {
	var newest *corev1.Pod
	for i := range p.pods {
		pod := &p.pods[i]
		if pod.Labels[LabelPart] != partHold || pod.DeletionTimestamp != nil || over(pod) {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp) {
			newest = pod
		}
	}
	return newest
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// readHealth takes what the kubelet says of the device in the holder's status. With poke
// it is asked first.
func (p *attempt) readHealth(ctx context.Context, holder *corev1.Pod, poke bool) error {
	acknowledged := false
	if poke {
		err := p.poker.hold(ctx, holder)
		switch {
		case err == nil:
			acknowledged = true
		case errors.Is(err, ErrNoAnswer), errors.Is(err, ErrNotPoked), apierrors.IsForbidden(err):
			p.tended.Trouble = err.Error()
		default:
			return err
		}
		if holder, err = p.poker.read(ctx, holder); err != nil {
			return err
		}
	}
	claim := ClaimView(p.claim)
	observations, unmapped := device.Observe(PodView(holder), func(namespace, name string) (device.Claim, bool) {
		return claim, namespace == claim.Namespace && name == claim.Name
	})
	for _, report := range device.Digest(observations, p.Asked) {
		if report.Device != p.Device {
			continue
		}
		read := reading.Judge(p.catalogue, p.Device, report.Report)
		read.Monitor, read.Acknowledged = true, acknowledged
		p.tended.Reading = &read
	}
	switch {
	case p.tended.Reading != nil || !acknowledged:
	case len(unmapped) > 0:
		p.tended.Trouble = fmt.Sprintf("what the kubelet says in Pod %s/%s can't be led to the device: %s", holder.Namespace, holder.Name, unmapped[0].Reason)
	default:
		p.tended.Trouble = fmt.Sprintf("the kubelet of node %s says nothing of the device in the status of Pod %s/%s; look whether its feature gate ResourceHealthStatus is on", holder.Spec.NodeName, holder.Namespace, holder.Name)
	}
	return nil
}

// readJob tells how the gate's program stands. Only while the holder goes on having the
// device is it known which device the program had.
func (p *attempt) readJob(holder *corev1.Pod) {
	part := partOf(p.Gate)
	job := p.job(part)
	if part == "" || job == nil {
		return
	}
	now := standingOf(job, p.pods)
	p.tended.Job, p.tended.Report = now.state, now.report
	if now.trouble != "" {
		p.tended.Trouble = now.trouble
	}
	if (now.state == quarantine.JobPassed || now.state == quarantine.JobFailed) && (holder == nil || string(holder.UID) != job.Annotations[AnnotationHeldBy]) {
		p.tended.Job = quarantine.JobLost
		p.tended.Report = bounded("the Pod that had the device meanwhile went, so that it isn't known which one the program had; it ended with " + now.report)
	}
}

// standing is how a program stands.
type standing struct {
	state           quarantine.JobState
	report, trouble string
}

// standingOf judges a Job by its Pod: a Job alone counts a Pod that was told to go, and
// went in peace, as one that succeeded.
func standingOf(job *batchv1.Job, pods []corev1.Pod) standing {
	i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return metav1.IsControlledBy(&pod, job) })
	if i < 0 {
		if ended(job) {
			return standing{state: quarantine.JobLost, report: bounded("its Pod is gone, and with it how it ended: " + ending(job))}
		}
		return standing{state: quarantine.JobStarting}
	}
	pod := &pods[i]
	if why := disrupted(pod); why != "" {
		return standing{state: quarantine.JobLost, report: bounded(why)}
	}
	if !over(pod) {
		if pod.Status.Phase == corev1.PodRunning {
			return standing{state: quarantine.JobRunning}
		}
		return standing{state: quarantine.JobStarting, trouble: podTrouble(pod, time.Now())}
	}
	said := endOf(pod)
	switch {
	case pod.Status.Reason == "DeadlineExceeded":
		return standing{state: quarantine.JobFailed, report: bounded("it had not ended by its deadline")}
	case said == nil || said.Reason == "ContainerStatusUnknown":
		return standing{state: quarantine.JobLost, report: bounded(fmt.Sprintf("Pod %s ended without its program: %s", pod.Name, cmp.Or(pod.Status.Message, pod.Status.Reason, "no reason is given")))}
	case said.ExitCode == 0 && pod.Status.Phase == corev1.PodSucceeded:
		return standing{state: quarantine.JobPassed, report: reportOf(said)}
	}
	return standing{state: quarantine.JobFailed, report: reportOf(said)}
}

// reportOf is how a program ended, and what it said.
func reportOf(said *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", said.ExitCode)
	if said.Reason != "" && said.Reason != "Completed" && said.Reason != "Error" {
		text += " (" + said.Reason + ")"
	}
	if message := strings.TrimSpace(said.Message); message != "" {
		text += ": " + message
	}
	return bounded(text)
}

// bounded cuts a text to what a case keeps of it.
func bounded(text string) string {
	if len(text) <= maxReport {
		return strings.ToValidUTF8(text, "\ufffd")
	}
	const mark = "…"
	return strings.ToValidUTF8(text[:maxReport-len(mark)], "") + mark
}

// endOf is how a Pod's one container ended, or nil.
func endOf(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Terminated != nil {
			return status.State.Terminated
		}
	}
	return nil
}

// disrupted says what ended a Pod, or ends it, if that was neither its program nor its
// deadline.
func disrupted(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			return fmt.Sprintf("Pod %s was ended by others: %s", pod.Name, cmp.Or(condition.Message, condition.Reason))
		}
	}
	switch {
	case slices.Contains([]string{"Evicted", "Preempting", "Terminated", "Shutdown", "NodeLost", "NodeShutdown", "NodeAffinity"}, pod.Status.Reason):
		return fmt.Sprintf("Pod %s was ended by its node: %s", pod.Name, cmp.Or(pod.Status.Message, pod.Status.Reason))
	case pod.DeletionTimestamp != nil:
		return fmt.Sprintf("Pod %s was deleted by somebody", pod.Name)
	}
	return ""
}

// ended tells whether a Job is over, or about to be.
func ended(job *batchv1.Job) bool { return ending(job) != "" }

// ending is how a Job is over; empty while it isn't.
func ending(job *batchv1.Job) string {
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete, condition.Type == batchv1.JobFailed:
			return cmp.Or(condition.Message, condition.Reason, string(condition.Type))
		}
	}
	return ""
}

// unschedulable tells whether the scheduler found no place for a Pod.
func unschedulable(pod *corev1.Pod) bool { return scheduling(pod).Status == corev1.ConditionFalse }

func scheduling(pod *corev1.Pod) corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition
		}
	}
	return corev1.PodCondition{}
}

// pullFailures are why a container waits whose image isn't to be had.
// (k8s.io/kubernetes pkg/kubelet/images/types.go)
var pullFailures = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}

// podTrouble says why a Pod of ours doesn't run, with what to do; empty where nothing is
// wrong yet.
func podTrouble(pod *corev1.Pod, now time.Time) string {
	name := pod.Namespace + "/" + pod.Name
	if unschedulable(pod) {
		return fmt.Sprintf("Pod %s can't be scheduled: %s", name, cmp.Or(scheduling(pod).Message, scheduling(pod).Reason))
	}
	for _, status := range pod.Status.ContainerStatuses {
		waiting := status.State.Waiting
		switch {
		case waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing":
		case slices.Contains(pullFailures, waiting.Reason):
			return fmt.Sprintf("Pod %s: image %s can't be had (%s): %s; put it where the node finds it, or name another one in the policy or SICKBAY_PROBE_IMAGE", name, status.Image, waiting.Reason, waiting.Message)
		default:
			said := ""
			if last := status.LastTerminationState.Terminated; last != nil {
				said = "; it last ended with " + reportOf(last)
			}
			return bounded(fmt.Sprintf("Pod %s: its container doesn't run (%s): %s%s", name, waiting.Reason, waiting.Message, said))
		}
	}
	if bound := scheduling(pod); pod.Status.Phase == corev1.PodPending && bound.Status == corev1.ConditionTrue && now.Sub(bound.LastTransitionTime.Time) > slowStart {
		return fmt.Sprintf("Pod %s is on node %s and hasn't started for %s; kubectl --namespace %s describe pod %s tells what its kubelet waits for", name, pod.Spec.NodeName, now.Sub(bound.LastTransitionTime.Time).Round(time.Second), pod.Namespace, pod.Name)
	}
	return ""
}

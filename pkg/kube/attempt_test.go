package kube

// This file holds to account what an attempt decides without a cluster: by what a claim
// is pinned, and what a program's end comes to.

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// attributes are string attributes, by turns a name and its value.
func attributes(words ...string) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	all := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	for i := 0; i < len(words); i += 2 {
		all[resourcev1.QualifiedName(words[i])] = resourcev1.DeviceAttribute{StringValue: &words[i+1]}
	}
	return all
}

func poolOn(node, pool string, devices ...resourcev1.Device) resourcev1.ResourceSlice {
	slice := resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", Pool: resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1}, Devices: devices,
	}}
	if node != "" {
		slice.Spec.NodeName = &node
	}
	return slice
}

// A claim is pinned by what tells its device apart from all that its Pod could get, and by
// nothing less.
func TestAClaimIsPinnedToOneDeviceOrNone(t *testing.T) {
	gpu := func(name string, words ...string) resourcev1.Device {
		return resourcev1.Device{Name: name, Attributes: attributes(words...)}
	}
	numbered := func(name string, index int64) resourcev1.Device {
		d := gpu(name, "model", "A")
		d.Attributes["index"] = resourcev1.DeviceAttribute{IntValue: ptr.To(index)}
		return d
	}
	const driver = `device.driver == "gpu.example.com"`
	for sentence, c := range map[string]struct {
		slices []resourcev1.ResourceSlice
		node   string
		want   string
		why    string
	}{
		"by its uuid": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", gpu("gpu-0", "uuid", "GPU-0", "model", "A"), gpu("gpu-1", "uuid", "GPU-1", "model", "A"))}, node: "n1",
			want: driver + ` && "uuid" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"]["uuid"] == "GPU-0"`,
		},
		"by where it sits as well, so that a card that is swapped isn't it": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", gpu("gpu-0", "uuid", "GPU-0", "resource.kubernetes.io/pciBusID", "0:1"))}, node: "n1",
			want: driver + ` && "uuid" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"]["uuid"] == "GPU-0"` +
				` && "pciBusID" in device.attributes["resource.kubernetes.io"] && device.attributes["resource.kubernetes.io"]["pciBusID"] == "0:1"`,
		},
		"by whatever else tells it apart": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", numbered("gpu-0", 0), numbered("gpu-1", 1))}, node: "n1",
			want: driver + ` && "index" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"]["index"] == 0`,
		},
		"the same name with the driver's domain is the same attribute": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", gpu("gpu-0", "uuid", "GPU-0"), gpu("gpu-1", "gpu.example.com/uuid", "GPU-0"))}, node: "n1",
			why: "gpu.example.com/n1/gpu-1 has the same attributes",
		},
		"a twin in a pool that is on no one node counts": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", gpu("gpu-0", "uuid", "GPU-0")), poolOn("", "shared", gpu("gpu-9", "uuid", "GPU-0"))}, node: "n1",
			why: "gpu.example.com/shared/gpu-9 has the same attributes",
		},
		"a twin on another node doesn't, for the Pod runs on this one": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", gpu("gpu-0", "model", "A")), poolOn("n2", "n2", gpu("gpu-0", "model", "A"))}, node: "n1",
			want: driver,
		},
		"it does where no node is known": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", gpu("gpu-0", "model", "A")), poolOn("n2", "n2", gpu("gpu-0", "model", "A"))},
			why:    "gpu.example.com/n2/gpu-0 has the same attributes",
		},
		"without attributes nothing does": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", gpu("gpu-0"), gpu("gpu-1"))}, node: "n1", why: "uuid or resource.kubernetes.io/pciBusID",
		},
		"one that isn't listed": {
			slices: []resourcev1.ResourceSlice{poolOn("n1", "n1", gpu("gpu-1", "uuid", "GPU-1"))}, node: "n1", why: "lists device gpu-0 of pool n1",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := pin(c.slices, device.Key{Driver: "gpu.example.com", Pool: "n1", Device: "gpu-0"}, c.node)
			if c.why != "" {
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Fatalf("%+v, %v; want it refused: %s", got, err, c.why)
				}
				return
			}
			if err != nil || got.expression != c.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got.expression, c.want)
			}
		})
	}
}

// A program passed only if it ended by itself, well, and was seen to.
func TestOnlyAnEndThatWasSeenCounts(t *testing.T) {
	over := []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	ended := func(code int32, reason, message string) corev1.PodStatus {
		phase := corev1.PodSucceeded
		if code != 0 {
			phase = corev1.PodFailed
		}
		return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}},
		}}}
	}
	with := func(status corev1.PodStatus, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sickbay-probes", Name: "p", OwnerReferences: []metav1.OwnerReference{{UID: "job", Controller: ptr.To(true)}}}, Status: status,
		}
		if change != nil {
			change(pod)
		}
		return pod
	}
	for sentence, c := range map[string]struct {
		over   []batchv1.JobCondition
		pod    *corev1.Pod
		want   quarantine.JobState
		report string
	}{
		"it has no Pod yet":            {nil, nil, quarantine.JobStarting, ""},
		"it runs":                      {nil, with(corev1.PodStatus{Phase: corev1.PodRunning}, nil), quarantine.JobRunning, ""},
		"it says that all is well":     {nil, with(ended(0, "Completed", `{"verdict":"passed"}`), nil), quarantine.JobPassed, `exit code 0: {"verdict":"passed"}`},
		"it says that something isn't": {nil, with(ended(3, "Error", ""), nil), quarantine.JobFailed, "exit code 3"},
		"it ran out of memory":         {nil, with(ended(137, "OOMKilled", ""), nil), quarantine.JobFailed, "exit code 137 (OOMKilled)"},
		"it talks without end":         {nil, with(ended(1, "Error", strings.Repeat("ü", 5000)), nil), quarantine.JobFailed, "exit code 1: ü"},
		"it hung":                      {nil, with(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded"}, nil), quarantine.JobFailed, "deadline"},
		"it was told to go, and went in peace": {over, with(ended(0, "Completed", ""), func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
		}), quarantine.JobLost, "EvictionByEvictionAPI"},
		"somebody deleted it":      {over, with(ended(0, "Completed", ""), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), quarantine.JobLost, "deleted by somebody"},
		"its node ran out":         {nil, with(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}, nil), quarantine.JobLost, "low on resource"},
		"its node never ran it":    {nil, with(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError"}, nil), quarantine.JobLost, "UnexpectedAdmissionError"},
		"how it ended isn't known": {nil, with(ended(137, "ContainerStatusUnknown", ""), nil), quarantine.JobLost, "ended without its program"},
		"its Pod is gone":          {over, nil, quarantine.JobLost, "its Pod is gone"},
		"its Pod is another Job's": {over, with(ended(0, "Completed", ""), func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another" }), quarantine.JobLost, "its Pod is gone"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var pods []corev1.Pod
			if c.pod != nil {
				pods = append(pods, *c.pod)
			}
			got := standingOf(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "job"}, Status: batchv1.JobStatus{Conditions: c.over}}, pods)
			if got.state != c.want || !strings.Contains(got.report, c.report) || c.report == "" && got.report != "" || len(got.report) > maxReport {
				t.Errorf("%s, %q; want %s, %q", got.state, got.report, c.want, c.report)
			}
		})
	}
}

// Whatever a program does, it ends by its gate's deadline, and its Job not before its Pod.
func TestAProgramEndsByItsDeadline(t *testing.T) {
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	for sentence, c := range map[string]struct {
		deadline time.Time
		want     int64
	}{
		"in time":         {now.Add(10 * time.Minute), 600},
		"nearly over":     {now.Add(-time.Second), 1},
		"none was given":  {time.Time{}, 1800},
		"less than a one": {now.Add(300 * time.Millisecond), 1},
	} {
		p := &attempt{Attempts: NewAttempts(nil, "sickbay-probes", nil, nil), Tend: quarantine.Tend{
			Device: device.Key{Driver: "gpu.example.com", Pool: "n1", Device: "gpu-0"}, Node: "n1", Token: 7, Deadline: c.deadline,
		}}
		job := p.newProgram(partProbe, policy.ProgramSettings{Image: "i"}, "holder", now)
		pod := job.Spec.Template.Spec
		if got := *pod.ActiveDeadlineSeconds; got != c.want || *job.Spec.ActiveDeadlineSeconds <= got {
			t.Errorf("%s: the Pod has %d s and its Job %d, want %d and more", sentence, got, *job.Spec.ActiveDeadlineSeconds, c.want)
		}
		if *job.Spec.BackoffLimit != 0 || pod.RestartPolicy != corev1.RestartPolicyNever || job.Annotations[AnnotationHeldBy] != "holder" {
			t.Errorf("%s: it is tried again, or nobody knows who had the device: %+v", sentence, job.Annotations)
		}
	}
}

package e2e

// This file makes attempts at recovery on a real control plane, gate by gate, without the
// case that asks for them.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// probes is the namespace of deploy/components/enforce/recovery.
const probes = "sickbay-probes"

// trial is an attempt at one device.
type trial struct {
	*cluster
	t        *testing.T
	attempts *kube.Attempts
	settings policy.ProbeSettings
	tend     quarantine.Tend
	mark     quarantine.PutMark
}

// An attempt gets its own device and no other, believes nothing that it heard of another
// one, and tells what is in its way; and nothing is left of it. Proves a part of R1.
func TestAnAttemptTriesItsDeviceAndNoOther(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37"}, 1, 6)
	c.awaitPolicy()
	attempts := kube.NewAttempts(kubernetes.NewForConfigOrDie(c.accounts.Worker.Config), probes, c.marks, reason.Builtin())
	for i, trying := range []struct {
		sentence string
		try      func(*trial)
	}{
		{"through its gates", (*trial).passes},
		{"a program that others end says nothing", (*trial).isEvicted},
		{"a taint of the driver's keeps it waiting, unless it may be tolerated", (*trial).isTainted},
		{"the mark of another epoch isn't its own", (*trial).meetsAnotherMark},
		{"a claim that has the device is named", (*trial).waitsForAnother},
		{"what it was given is looked at", (*trial).isGivenAnother},
	} {
		t.Run(trying.sentence, func(t *testing.T) {
			key := device.Key{Driver: simnode.DefaultDriver, Pool: "node-0", Device: fmt.Sprintf("gpu-%d", i)}
			epoch := time.Now().UnixMilli()
			own := policy.ProgramSettings{Image: "registry.example.com/probe:1"}
			trying.try(&trial{
				cluster: c, t: t, attempts: attempts, settings: policy.ProbeSettings{Hold: own, Probe: own, Canary: own},
				tend: quarantine.Tend{Device: key, Node: "node-0", Epoch: epoch, Attempt: 1, Token: epoch + 1},
				mark: quarantine.PutMark{Device: key, Node: "node-0", Epoch: epoch, Revision: 1, Actor: "sickbay", Since: time.Now(), Until: time.Now().Add(time.Hour)},
			})
		})
	}
}

// passes goes through the gates with a program, sees the device fail, and leaves nothing.
func (a *trial) passes() {
	a.keepOut()
	tended := a.until(quarantine.GateEvidence, "the device is Healthy on our claim", func(got quarantine.Tended) error {
		if got.Reading == nil || got.Reading.Health != device.Healthy || !got.Reading.Acknowledged || !got.Reading.Monitor {
			return fmt.Errorf("reading %+v", got.Reading)
		}
		return nil
	})
	claim := a.claim(tended.Claim)
	if results := claim.Results; len(results) != 1 || results[0].Device != a.tend.Device {
		a.t.Fatalf("the claim has %+v, want %s", results, a.tend.Device)
	}
	if len(claim.ReservedFor) != 1 || claim.ReservedFor[0] != tended.Pod {
		a.t.Errorf("reserved for %+v, want %s alone", claim.ReservedFor, tended.Pod)
	}
	for _, gate := range []struct {
		gate quarantine.Gate
		code int32
		want quarantine.JobState
	}{{quarantine.GateProbe, 0, quarantine.JobPassed}, {quarantine.GateCanary, 7, quarantine.JobFailed}} {
		a.ends(a.runs(gate.gate), gate.code)
		got := a.until(gate.gate, "the program's end", func(got quarantine.Tended) error {
			if got.Job != gate.want {
				return fmt.Errorf("job %q (%s)", got.Job, got.Report)
			}
			return nil
		})
		if want := fmt.Sprintf("exit code %d", gate.code); got.Report != want || got.Pod != tended.Pod {
			a.t.Errorf("report %q with Pod %s, want %q with %s", got.Report, got.Pod, want, tended.Pod)
		}
	}
	a.cluster.set(a.tend.Device, corev1.ResourceHealthStatusUnhealthy, "XID 79: GPU has fallen off the bus")
	a.until(quarantine.GateStability, "the fault", func(got quarantine.Tended) error {
		if got.Reading == nil || got.Reading.Health != device.Unhealthy || !got.Reading.Fault || got.Reading.Reason.Rule != "nvidia/xid-79" {
			return fmt.Errorf("reading %+v", got.Reading)
		}
		return nil
	})
	// A later attempt begins where nothing of an earlier one is left.
	earlier := a.tend.Token
	a.tend.Token++
	a.until(quarantine.GateStability, "the later attempt's own claim", func(got quarantine.Tended) error {
		if got.Reading == nil || !strings.HasSuffix(got.Claim, fmt.Sprint(a.tend.Token)) {
			return fmt.Errorf("claim %q, trouble %q", got.Claim, got.Trouble)
		}
		return nil
	})
	if late, err := a.attempts.Tend(a.t.Context(), a.asked(quarantine.GateStability, earlier), a.settings); err != nil || late.Trouble == "" || late.Claim != "" {
		a.t.Errorf("the earlier attempt came back with %+v, %v; want it refused", late, err)
	}
	a.cleans()
}

// isEvicted has the program's Pod evicted, and then the one that has the device.
func (a *trial) isEvicted() {
	a.keepOut()
	evict := func(pod device.PodRef) {
		a.t.Helper()
		err := a.kube.CoreV1().Pods(pod.Namespace).EvictV1(a.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
		if err != nil {
			a.t.Fatal(err)
		}
	}
	evict(a.runs(quarantine.GateProbe))
	lost := func(got quarantine.Tended) error {
		if got.Job != quarantine.JobLost {
			return fmt.Errorf("job %q (%s)", got.Job, got.Report)
		}
		return nil
	}
	a.until(quarantine.GateProbe, "the program is lost", lost)
	program := a.runs(quarantine.GateCanary)
	holder := a.tended(quarantine.GateCanary).Pod
	evict(holder)
	a.until(quarantine.GateStability, "another Pod has the device", func(got quarantine.Tended) error {
		if got.Reading == nil || got.Pod == holder {
			return fmt.Errorf("pod %s, trouble %q", got.Pod, got.Trouble)
		}
		return nil
	})
	// It ends well, and nobody can tell on which device it was all the time.
	a.ends(program, 0)
	a.until(quarantine.GateCanary, "the program is lost", lost)
	a.cleans()
}

// isTainted puts a taint of the driver's on the device.
func (a *trial) isTainted() {
	a.keepOut()
	taint := resourcev1.DeviceTaint{Key: "gpu.example.com/xid", Value: "79", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	if err := a.nodes.SetDriverTaints(a.t.Context(), "node-0", a.tend.Device.Device, taint); err != nil {
		a.t.Fatal(err)
	}
	a.until(quarantine.GateStability, "the taint is named", func(got quarantine.Tended) error {
		if !slices.Equal(got.Blocked, []string{taint.Key}) {
			return fmt.Errorf("blocked by %v, trouble %q", got.Blocked, got.Trouble)
		}
		return nil
	})
	a.cleans()
	a.tend.Token++
	a.settings.Tolerate = []string{taint.Key}
	a.until(quarantine.GateStability, "it is tolerated", func(got quarantine.Tended) error {
		if got.Reading == nil || len(got.Blocked) > 0 {
			return fmt.Errorf("blocked by %v, trouble %q", got.Blocked, got.Trouble)
		}
		return nil
	})
	a.cleans()
}

// meetsAnotherMark marks the device by another epoch.
func (a *trial) meetsAnotherMark() {
	a.mark.Epoch++
	a.keepOut()
	a.until(quarantine.GateStability, "the mark is named", func(got quarantine.Tended) error {
		if !strings.Contains(got.Trouble, "DeviceTaintRule "+kube.MarkName(a.tend.Device)) {
			return fmt.Errorf("trouble %q", got.Trouble)
		}
		return nil
	})
	a.cleans()
}

// waitsForAnother has a tenant have the device.
func (a *trial) waitsForAnother() {
	pod, err := a.nodes.Place(a.t.Context(), "default", "tenant", "node-0", a.tend.Device.Device)
	if err != nil {
		a.t.Fatal(err)
	}
	a.until(quarantine.GateStability, "the tenant's claim is named", func(got quarantine.Tended) error {
		if !strings.Contains(got.Trouble, "ResourceClaim default/") {
			return fmt.Errorf("trouble %q", got.Trouble)
		}
		return nil
	})
	a.cleans()
	if _, err := a.nodes.AwaitPod(a.t.Context(), "default", pod.Name, simnode.Running); err != nil {
		a.t.Errorf("the tenant: %v", err)
	}
}

// isGivenAnother writes another device into the claim, as whoever may write its status can.
func (a *trial) isGivenAnother() {
	taint := resourcev1.DeviceTaint{Key: "gpu.example.com/lost", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	if err := a.nodes.SetDriverTaints(a.t.Context(), "node-0", a.tend.Device.Device, taint); err != nil {
		a.t.Fatal(err)
	}
	tended := a.until(quarantine.GateStability, "it waits", func(got quarantine.Tended) error {
		if len(got.Blocked) == 0 {
			return errors.New("not blocked")
		}
		return nil
	})
	claim, err := a.kube.ResourceV1().ResourceClaims(probes).Get(a.t.Context(), tended.Claim, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "device", Driver: a.tend.Device.Driver, Pool: a.tend.Device.Pool, Device: "gpu-0"},
	}}}
	if _, err := a.kube.ResourceV1().ResourceClaims(probes).UpdateStatus(a.t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	got := a.until(quarantine.GateProbe, "it says so", func(got quarantine.Tended) error {
		if !strings.Contains(got.Elsewhere, "/gpu-0") {
			return fmt.Errorf("elsewhere %q", got.Elsewhere)
		}
		return nil
	})
	if got.Reading != nil || got.Job != quarantine.JobNone {
		a.t.Errorf("reading %+v and job %q of another device, want nothing believed and nothing run", got.Reading, got.Job)
	}
	a.cleans()
}

// keepOut marks the device, and returns once the mark is in force.
func (a *trial) keepOut() {
	a.t.Helper()
	report, err := a.marks.Put(a.t.Context(), a.mark)
	if err != nil || report.Outcome != quarantine.OutcomeInForce {
		a.t.Fatalf("the mark: %+v, %v", report, err)
	}
}

func (a *trial) asked(gate quarantine.Gate, token int64) quarantine.Tend {
	tend := a.tend
	tend.Gate, tend.Token, tend.Asked, tend.Deadline = gate, token, time.Now(), time.Now().Add(10*time.Minute)
	return tend
}

func (a *trial) tended(gate quarantine.Gate) quarantine.Tended {
	a.t.Helper()
	got, err := a.attempts.Tend(a.t.Context(), a.asked(gate, a.tend.Token), a.settings)
	if err != nil {
		a.t.Fatal(err)
	}
	return got
}

// until tends to a gate until the answer is what is wanted.
func (a *trial) until(gate quarantine.Gate, what string, wanted func(quarantine.Tended) error) (got quarantine.Tended) {
	a.t.Helper()
	a.eventually(what, 40*time.Second, func(context.Context) error {
		got = a.tended(gate)
		return wanted(got)
	})
	return got
}

// runs has a gate's program run, and returns its Pod.
func (a *trial) runs(gate quarantine.Gate) device.PodRef {
	a.t.Helper()
	a.until(gate, "the program runs", func(got quarantine.Tended) error {
		if got.Job != quarantine.JobRunning {
			return fmt.Errorf("job %q (%s), trouble %q", got.Job, got.Report, got.Trouble)
		}
		return nil
	})
	pods, err := a.kube.CoreV1().Pods(probes).List(a.t.Context(), metav1.ListOptions{
		LabelSelector: fmt.Sprintf("%s=%d,%s=%s", kube.LabelAttempt, a.tend.Token, kube.LabelPart, strings.ToLower(string(gate))),
	})
	if err != nil || len(pods.Items) != 1 {
		a.t.Fatalf("%d Pods of gate %s, %v", len(pods.Items), gate, err)
	}
	return kube.PodView(&pods.Items[0]).Ref
}

func (a *trial) ends(pod device.PodRef, code int32) {
	a.t.Helper()
	if _, err := a.nodes.Exit(a.t.Context(), pod.Namespace, pod.Name, code); err != nil {
		a.t.Fatal(err)
	}
}

func (a *trial) claim(name string) device.Claim {
	a.t.Helper()
	claim, err := a.kube.ResourceV1().ResourceClaims(probes).Get(a.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return kube.ClaimView(claim)
}

// cleans clears the attempt away, and wants nothing of its device left.
func (a *trial) cleans() {
	a.t.Helper()
	a.eventually("nothing is left", 40*time.Second, func(ctx context.Context) error {
		cleaned, err := a.attempts.CleanUp(ctx, quarantine.CleanUp{Device: a.tend.Device, UpTo: a.tend.Token})
		if err == nil && cleaned.Failed != "" {
			err = errors.New(cleaned.Failed)
		}
		return err
	})
	claims, err := a.kube.ResourceV1().ResourceClaims(probes).List(a.t.Context(), metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, claim := range claims.Items {
		if claim.Annotations[kube.AnnotationDevice] == a.tend.Device.String() {
			a.t.Errorf("claim %s is left", claim.Name)
		}
	}
}

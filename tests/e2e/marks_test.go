package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

func put(key device.Key, epoch, revision int64) quarantine.PutMark {
	return quarantine.PutMark{
		Device: key, Node: key.Pool, Epoch: epoch, Revision: revision,
		Reason:   reason.Builtin().Match(key.Driver, "XID 79: GPU has fallen off the bus"),
		Message:  "XID 79: GPU has fallen off the bus",
		Severity: reason.SeverityFatal, Actor: "sickbay",
		Since: time.UnixMilli(epoch), Until: time.UnixMilli(epoch).Add(time.Hour),
	}
}

// askForDevice makes a Pod that wants one device of a class, through a claim of its own.
func (c *cluster) askForDevice(name, class string) {
	c.t.Helper()
	claim := simnode.MakeClaim("default", name).Request("gpu", class, 1).Obj()
	if _, err := c.kube.ResourceV1().ResourceClaims("default").Create(c.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.kube.CoreV1().Pods("default").Create(c.t.Context(), simnode.MakePod("default", name).Claim("gpu", name).Obj(), metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// awaitUnschedulable waits until the scheduler has found no device for a Pod.
func (c *cluster) awaitUnschedulable(name string) {
	c.t.Helper()
	c.eventually("the scheduler finds no device for "+name, 20*time.Second, func(ctx context.Context) error {
		pod, err := c.kube.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("no verdict yet; node %q", pod.Spec.NodeName)
	})
}

// The scheduler gives a marked device to nobody, in each API version that is
// served, and a mark names its device by driver, pool and device. Proves Q1 as
// far as the mark goes, and case 33: a rule that could match another device is
// never written.
func TestAMarkedDeviceIsNotAllocated(t *testing.T) {
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			c := start(t, stack.Options{Kubernetes: version}, 1, 2)
			held := c.runPod("first")
			spare := held
			spare.Device = map[string]string{"gpu-0": "gpu-1", "gpu-1": "gpu-0"}[held.Device]

			report, err := c.marks.Put(t.Context(), put(spare, 1000, 1))
			if err != nil || report.Outcome != quarantine.OutcomeInForce {
				t.Fatalf("put: %+v, %v", report, err)
			}
			rules, err := c.rules(t.Context())
			if err != nil || len(rules) != 1 {
				t.Fatalf("rules: %d, %v; want the one mark", len(rules), err)
			}
			selector, _, _ := unstructured.NestedStringMap(rules[0].Object, "spec", "deviceSelector")
			want := map[string]string{"driver": spare.Driver, "pool": spare.Pool, "device": spare.Device}
			if fmt.Sprint(selector) != fmt.Sprint(want) {
				t.Errorf("selector %v, want %v", selector, want)
			}

			c.askForDevice("second", simnode.DefaultDriver)
			c.awaitUnschedulable("second")

			// Whoever writes the rule's status in between makes it a conflict, which is tried again.
			c.eventually("the mark is lifted", 10*time.Second, func(ctx context.Context) error {
				lifted, err := c.marks.Lift(ctx, quarantine.LiftMark{Device: spare, Epoch: 1000})
				if err == nil && lifted.Outcome != quarantine.OutcomeLifted {
					err = fmt.Errorf("%+v", lifted)
				}
				return err
			})
			c.eventually("the device is allocated again", 30*time.Second, func(ctx context.Context) error {
				_, err := c.nodes.AwaitPod(ctx, "default", "second", simnode.Running)
				return err
			})
			if got := c.allocated("second"); got != spare {
				t.Errorf("allocated %s, want %s", got, spare)
			}
		})
	}
}

// Marks are made, repeated, taken over, fenced and removed by their epoch, and
// nobody else's object is touched. Proves Q5; rows of case 22: the clean-up of
// an earlier epoch can't touch a later one's mark.
func TestAMarkBelongsToItsEpoch(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37"}, 0, 0)
	ctx := t.Context()
	key, _ := device.NewDRA("gpu.example.com", "rack4/anvil-07", "gpu-3")
	capabilities, err := kube.Discover(ctx, c.discovery)
	if err != nil {
		t.Fatal(err)
	}
	rules := c.dynamic.Resource(capabilities.TaintRules)
	outcome := func(what string, report quarantine.MarkReported, err error, want quarantine.MarkOutcome) quarantine.MarkReported {
		t.Helper()
		if err != nil || report.Outcome != want {
			t.Fatalf("%s: %+v, %v; want %s", what, report, err, want)
		}
		return report
	}
	epoch := func() string {
		t.Helper()
		object, err := rules.Get(ctx, kube.MarkName(key), metav1.GetOptions{})
		if err != nil {
			return "none"
		}
		value, _, _ := unstructured.NestedString(object.Object, "spec", "taint", "value")
		return value
	}
	// The controller that acts on rules writes their status; what counts is what
	// we wrote.
	writes := func() (count int) {
		t.Helper()
		calls, err := c.stack.Calls(c.accounts.Worker.User)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range calls {
			if call.Resource == "devicetaintrules" && call.Writes() && call.Code < http.StatusBadRequest {
				count++
			}
		}
		return count
	}

	report, err := c.marks.Put(ctx, put(key, 2000, 1))
	outcome("first put", report, err, quarantine.OutcomeInForce)
	before := writes()
	report, err = c.marks.Put(ctx, put(key, 2000, 1))
	outcome("repeated put", report, err, quarantine.OutcomeInForce)
	if after := writes(); before != 1 || after != before {
		t.Errorf("%d writes, then %d: a repeated put wrote", before, after)
	}
	report, err = c.marks.Put(ctx, put(key, 1999, 9))
	outcome("put of an earlier epoch", report, err, quarantine.OutcomeSuperseded)
	// A first mark is made where there is none, and touches none that is there.
	report, err = c.marks.First(ctx, put(key, 2500, 9))
	outcome("first mark of a later epoch", report, err, quarantine.OutcomeForeign)
	report, err = c.marks.First(ctx, put(key, 2000, 9))
	outcome("first mark of its epoch again", report, err, quarantine.OutcomeInForce)
	if after := writes(); after != before {
		t.Errorf("%d writes, then %d: a first mark wrote over one", before, after)
	}
	if got := epoch(); got != "2000" {
		t.Errorf("epoch %s after an earlier epoch's put, want 2000", got)
	}
	report, err = c.marks.Put(ctx, put(key, 3000, 1))
	report = outcome("put of a later epoch", report, err, quarantine.OutcomeInForce)
	if report.Before == nil || report.Before.Epoch != 2000 || report.Before.Severity != reason.SeverityFatal {
		t.Errorf("what the mark said before: %+v, want epoch 2000, fatal", report.Before)
	}
	report, err = c.marks.Lift(ctx, quarantine.LiftMark{Device: key, Epoch: 2000})
	outcome("lift by the earlier epoch", report, err, quarantine.OutcomeSuperseded)
	if got := epoch(); got != strconv.Itoa(3000) {
		t.Errorf("epoch %s after the earlier epoch's lift, want 3000", got)
	}

	// Somebody widens the selector: the mark isn't what was written any more.
	c.change(kube.MarkName(key), func(rule *unstructured.Unstructured) {
		unstructured.RemoveNestedField(rule.Object, "spec", "deviceSelector", "pool")
	})
	report, err = c.marks.Lift(ctx, quarantine.LiftMark{Device: key, Epoch: 3000})
	outcome("lift of a changed mark", report, err, quarantine.OutcomeChanged)
	report, err = c.marks.Put(ctx, put(key, 3000, 2))
	outcome("put over a changed mark", report, err, quarantine.OutcomeInForce)
	if mark, err := c.marks.Read(ctx, key); err != nil || mark == nil || !mark.Intact {
		t.Errorf("mark after it was put again: %+v, %v; want it intact", mark, err)
	}

	// An object of that name that isn't ours stays as it is.
	other, _ := device.NewDRA("gpu.example.com", "anvil-07", "gpu-4")
	foreign := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": capabilities.TaintRules.GroupVersion().String(), "kind": "DeviceTaintRule",
		"metadata": map[string]any{"name": kube.MarkName(other)},
		"spec": map[string]any{
			"deviceSelector": map[string]any{"driver": "gpu.example.com", "pool": "anvil-07", "device": "gpu-4"},
			"taint":          map[string]any{"key": "example.com/maintenance", "effect": "NoSchedule"},
		},
	}}
	if _, err := rules.Create(ctx, foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	report, err = c.marks.Put(ctx, put(other, 4000, 1))
	outcome("put over a foreign rule", report, err, quarantine.OutcomeForeign)
	report, err = c.marks.Lift(ctx, quarantine.LiftMark{Device: other, Epoch: 4000})
	outcome("lift of a foreign rule", report, err, quarantine.OutcomeForeign)
	if _, err := rules.Get(ctx, kube.MarkName(other), metav1.GetOptions{}); err != nil {
		t.Errorf("the foreign rule is gone: %v", err)
	}

	report, err = c.marks.Lift(ctx, quarantine.LiftMark{Device: key, Epoch: 3000})
	outcome("lift", report, err, quarantine.OutcomeLifted)
	report, err = c.marks.Lift(ctx, quarantine.LiftMark{Device: key, Epoch: 3000})
	outcome("repeated lift", report, err, quarantine.OutcomeLifted)
}

// Where the API isn't served, where rights are missing, and for devices that no
// API can keep out, the writer says so with a remedy instead of failing.
func TestAMarkThatCannotBeMadeSaysWhy(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.36", NoTaintRules: true}, 0, 0)
	key, _ := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	plugin, _ := device.NewPlugin("anvil-07", "example.com/nic", "nic-0000:3b:00.0")
	for what, k := range map[string]device.Key{"no such API": key, "a device plugin's device": plugin} {
		report, err := c.marks.Put(t.Context(), put(k, 1000, 1))
		if err != nil || report.Outcome != quarantine.OutcomeUnavailable || report.Detail == "" {
			t.Errorf("%s: %+v, %v; want it unavailable, with a reason", what, report, err)
		}
	}
}

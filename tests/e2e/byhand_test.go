package e2e

// This file has an operator take devices out by hand, as a person types it.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// Q9. An operator takes out a device, a pool and a node's devices, one of them in use. Each
// has a case and a mark of its own, which say who and why; the scheduler gives out what
// is left and nothing else; whoever has one keeps it. When the operator's time is over the
// case goes on to its gates, still kept out, however healthy its device always was. What
// makes no sense is refused with what to do instead, and leaves nothing behind. All of it
// is in the audit trail. Proves a part of R4, and of R6: words of operators reach the cases in
// each way that they are sent, many at once too; what is refused is so visibly, and a forced
// release with the gate that it would skip; and what the sender's client calls itself is on
// record apart from whom the message names.
func TestAnOperatorTakesADeviceAPoolAndANodeOut(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 4, 2)
	c.process("worker", "worker", "", append(fastEnvironment(), "SICKBAY_BUDGET_CLASS=none", "SICKBAY_BUDGET_CLUSTER=none")...)
	c.process("starter", "starter", "", starterEnvironment()...)
	o := c.operator()
	if _, err := c.nodes.Place(t.Context(), "default", "train-0", "node-2", "gpu-0"); err != nil {
		t.Fatal(err)
	}
	const oncall, why = "oncall@example.com", "it runs hot"
	named := func(node, name string) device.Key {
		return device.Key{Driver: simnode.DefaultDriver, Pool: node, Device: name}
	}
	one, held := named("node-0", "gpu-0"), named("node-2", "gpu-0")
	hand := func(target string, more ...string) answer {
		return o.types(o.binary, append([]string{"quarantine", target, "--actor", oncall, "--reason", why}, more...)...)
	}

	o.refusesByHand(one)

	until := time.Now().Add(20 * time.Second).UTC().Truncate(time.Second)
	stamp := until.Format(time.RFC3339)
	o.wants("a device", hand(one.String(), "--until", stamp), 0, "quarantine accepted for "+one.String()+", until ")
	pool := hand("pool/" + simnode.DefaultDriver + "/node-1")
	o.wants("a pool", pool, 0, named("node-1", "gpu-0").String(), named("node-1", "gpu-1").String())
	node := hand("node/node-2", "--for", "2h")
	o.wants("a node", node, 0, held.String(), named("node-2", "gpu-1").String())
	o.wants("what is out already", hand(one.String()), 1, "it is Quarantined already; send extend")
	o.wants("a pool that is", hand("pool/"+simnode.DefaultDriver+"/node-1"), 1, "it is Quarantined already")

	out := []device.Key{one, named("node-1", "gpu-0"), named("node-1", "gpu-1"), held, named("node-2", "gpu-1")}
	for _, key := range out {
		s := c.awaitInForce(key)
		if s.Phase != quarantine.PhaseQuarantined || s.Reason.Code != reason.ByHand || s.Actor != oncall || s.Message != why {
			t.Errorf("%s is %s for %s (%s) by %s", key, s.Phase, s.Reason.Code, s.Message, s.Actor)
		}
	}
	rules, err := c.rules(t.Context())
	if err != nil || len(rules) != len(out) {
		t.Fatalf("%d marks, %v; want %d", len(rules), err, len(out))
	}
	for _, rule := range rules {
		said := rule.GetAnnotations()
		if said["sickbay.dev/actor"] != oncall || said["sickbay.dev/why"] != why {
			t.Errorf("mark %s says %v", rule.GetName(), said)
		}
		if said[kube.AnnotationDevice] == one.String() && said["sickbay.dev/until"] < stamp {
			t.Errorf("mark %s ends at %s, before %s", rule.GetName(), said["sickbay.dev/until"], stamp)
		}
	}

	// Three devices are left, and the scheduler gives out these.
	left := []device.Key{named("node-0", "gpu-1"), named("node-3", "gpu-0"), named("node-3", "gpu-1")}
	for n := range left {
		if key := c.runPod(fmt.Sprintf("next-%d", n)); !slices.Contains(left, key) {
			t.Errorf("%s was given out although an operator took it out", key)
		}
	}
	c.askForDevice("one-too-many", simnode.DefaultDriver)
	c.awaitUnschedulable("one-too-many")
	waits := func(key device.Key, want quarantine.Waiting) {
		t.Helper()
		c.awaitCase(key, string(want), func(s quarantine.Case) error {
			if s.Phase != quarantine.PhaseQuarantined || s.Waiting != want || s.Mark.State != quarantine.MarkInForce {
				return fmt.Errorf("%s %s, mark %s", s.Phase, s.Waiting, s.Mark.State)
			}
			return nil
		})
	}
	waits(held, quarantine.WaitingForHolder)
	waits(named("node-2", "gpu-1"), quarantine.WaitingForOperator)
	if pod, err := c.nodes.AwaitPod(t.Context(), "default", "train-0", simnode.Running); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("who has one keeps it: %v", err)
	}

	// The time is over: its gates are next, and it isn't given back before.
	waits(one, quarantine.WaitingForRecovery)
	if now := time.Now(); now.Before(until) {
		t.Errorf("it went on at %s, before its time was over at %s", now, until)
	}
	c.awaitUnschedulable("one-too-many")

	o.tellsWhoTookThemOut(out, oncall, why)
	o.speaks(out)
}

// refusesByHand types what makes no sense, with a word that is in each answer: the object,
// or what to do. None of it leaves a case.
func (o *operator) refusesByHand(key device.Key) {
	o.t.Helper()
	past := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	for sentence, c := range map[string]struct {
		typed []string
		code  int
		says  []string
	}{
		"no reason":            {[]string{key.String()}, 2, []string{"say why with --reason"}},
		"no name behind actor": {[]string{key.String(), "--reason", "x", "--actor", " "}, 1, []string{key.String(), "actor is empty; say who you are"}},
		"a time that is over":  {[]string{key.String(), "--reason", "x", "--until", past}, 2, []string{past + " is over", "want a time to come"}},
		"no time":              {[]string{key.String(), "--reason", "x", "--until", "tomorrow"}, 2, []string{"want a time like 2026-12-24T08:00:00Z"}},
		"two times":            {[]string{key.String(), "--reason", "x", "--for", "1h", "--until", past}, 2, []string{"--for 1h0m0s and --until", "want one of them"}},
		"a time before now":    {[]string{key.String(), "--reason", "x", "--for", "-1h"}, 2, []string{"want a time from now on"}},
		"longer than a month":  {[]string{key.String(), "--reason", "x", "--for", "721h"}, 1, []string{key.String(), "at most 720h"}},
		"a device that isn't":  {[]string{simnode.DefaultDriver + "/node-0/gpu-7", "--reason", "x"}, 4, []string{"no device is called gpu.example.com/node-0/gpu-7", "did you mean"}},
		"a name of several":    {[]string{"gpu-0", "--reason", "x"}, 2, []string{"lacks a part", "gpu.example.com/node-0/gpu-0", "gpu.example.com/node-1/gpu-0"}},
		"a pool that isn't":    {[]string{"pool/" + simnode.DefaultDriver + "/node-9", "--reason", "x"}, 4, []string{"pool/gpu.example.com/node-9 has no devices", "`sickbay devices` shows all"}},
		"a pool half named":    {[]string{"pool/node-0", "--reason", "x"}, 4, []string{"pool/node-0 has no devices"}},
		"a node that isn't":    {[]string{"node/node-9", "--reason", "x"}, 4, []string{"node/node-9 has no devices"}},
		"nothing":              {[]string{"--reason", "x"}, 2, []string{"quarantine what?"}},
		"two devices":          {[]string{key.String(), "node/node-1", "--reason", "x"}, 2, []string{"takes one device, pool or node"}},
	} {
		o.wants(sentence, o.types(o.binary, append([]string{"quarantine"}, c.typed...)...), c.code, c.says...)
	}
	o.eventually("nothing is left of it", 20*time.Second, func(ctx context.Context) error {
		if said := o.types(o.binary, "devices", "--faulty", "-o", "name"); said.code != 0 || strings.TrimSpace(said.out) != "" {
			return fmt.Errorf("exit %d: %s%s", said.code, said.out, said.err)
		}
		running, err := o.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", devicewf.WorkflowType),
		})
		if err == nil && running.GetCount() != 0 {
			err = fmt.Errorf("%d workflows of devices run", running.GetCount())
		}
		return err
	})
}

// tellsWhoTookThemOut reads it in the audit trail, where a message without a name is too.
func (o *operator) tellsWhoTookThemOut(out []device.Key, actor, why string) {
	o.t.Helper()
	err := o.temporal.SignalWorkflow(o.t.Context(), devicewf.ID(out[0]), "", string(quarantine.VerbQuarantine), map[string]string{"reason": "no name"})
	if err != nil {
		o.t.Fatal(err)
	}
	o.eventually("the trail has all of it", 30*time.Second, func(context.Context) error {
		trail, said := o.trail(nil, "--since", "1h", "--actor", actor)
		if said.code != 0 {
			return fmt.Errorf("exit %d: %s", said.code, said.err)
		}
		kinds := map[quarantine.NoticeKind]int{}
		for _, d := range trail.Decisions {
			kinds[d.Kind]++
			if want := map[bool]string{true: "it is Quarantined already", false: why}[d.Kind == quarantine.NoticeRefused]; !strings.Contains(d.Seen+d.Text, want) {
				return fmt.Errorf("%s of %s doesn't say why: %q", d.Kind, d.Name, d.Text)
			}
		}
		if kinds[quarantine.NoticeOpened] != len(out) || kinds[quarantine.NoticeMessage] != len(out) || kinds[quarantine.NoticeRefused] != 3 {
			return fmt.Errorf("%v for %d devices", kinds, len(out))
		}
		refused, _ := o.trail(nil, "--since", "1h", "--actor", "unnamed", "--kind", "OperatorMessageRefused")
		if len(refused.Decisions) != 1 || !refused.Decisions[0].Alert || !strings.Contains(refused.Decisions[0].Text, "say who you are") {
			return fmt.Errorf("refused: %+v", refused.Decisions)
		}
		return nil
	})
	for _, node := range []string{"node-0", "node-1", "node-2"} {
		o.awaitEvents("Node", corev1.NamespaceDefault, node, "CaseOpened", "MarkInForce", "OperatorMessage")
	}
}

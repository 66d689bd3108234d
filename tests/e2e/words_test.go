package e2e

// This file has operators speak to cases in each way that there is: by the command line,
// by `temporal workflow signal` to one and to many, and by tctl.

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/workflowservice/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// speaks has operators speak to the cases of devices that are quarantined, of which nobody
// holds the first two.
func (o *operator) speaks(keys []device.Key) {
	o.t.Helper()
	one, two := keys[0], keys[1]
	o.speaksByTemporal(keys)
	o.sendsWhatCannotBeRead(one)
	o.forces(one)
	o.releasesTwice(one)

	// The command line says who the kubeconfig's user is, and names the case that is meant.
	epoch := o.awaitInForce(two).Epoch
	o.wants("another case's word", o.types(o.binary, "retire", two.String(), "--reason", "x", "--epoch", "7"), 1,
		fmt.Sprintf("it is for epoch 7, and the open case is of epoch %d", epoch))
	o.wants("retire", o.types(o.binary, "retire", two.String(), "--reason", "third time", "--epoch", fmt.Sprint(epoch)), 0,
		"retire accepted for "+two.String()+": Retired, waiting for Operator")
	o.wants("release of what is retired", o.types(o.binary, "release", two.String(), "--reason", "x"), 1, "send repaired once it is")
	o.wants("repaired", o.types(o.binary, "repaired", two.String(), "--reason", "new riser", "--ticket", "RMA-7"), 0, "repaired accepted for "+two.String()+": Quarantined")
	o.wants("the story", o.types(o.binary, "device", two.String()), 0, "repaired by admin", "new riser, ticket RMA-7", "send repaired once it is")
	o.awaitWord("the command line's user", "admin", two, func(d listing.Decision) bool {
		return strings.Contains(d.Text, "RMA-7") && strings.HasPrefix(d.Identity, "sickbay-repaired")
	})

	nobody := device.Key{Driver: two.Driver, Pool: "node-3", Device: "gpu-1"}
	o.wants("a device without a case", o.types(o.binary, "release", nobody.String(), "--reason", "x"), 4,
		nobody.String()+": the device has no open case", "sickbay device "+nobody.String())
	for sentence, typed := range map[string][]string{
		"no reason": {two.String()}, "no device": {"--reason", "x"}, "two devices": {one.String(), two.String(), "--reason", "x"},
		"half a name": {"gpu-0", "--reason", "x"}, "no epoch": {two.String(), "--reason", "x", "--epoch", "-7"},
	} {
		o.wants(sentence, o.types(o.binary, append([]string{"release"}, typed...)...), 2)
	}
}

// awaitWord waits for an operator's message in the trail.
func (o *operator) awaitWord(what, actor string, key device.Key, is func(listing.Decision) bool) {
	o.t.Helper()
	o.eventually(what+" is in the trail", 30*time.Second, func(context.Context) error {
		trail, said := o.trail(nil, "--since", "1h", "--actor", actor, "--device", key.String(), "--kind", "OperatorMessage*")
		if said.code != 0 || !slices.ContainsFunc(trail.Decisions, is) {
			return fmt.Errorf("exit %d: %+v %s", said.code, trail.Decisions, said.err)
		}
		return nil
	})
}

// speaksByTemporal sends what Temporal's own tools send.
func (o *operator) speaksByTemporal(keys []device.Key) {
	o.t.Helper()
	parts, err := stack.CommandParts()
	if err != nil {
		o.t.Fatal(err)
	}
	built, err := stack.Build(o.t.Context(), os.Stderr, parts...)
	if err != nil {
		o.t.Fatal(err)
	}
	signal := func(args ...string) answer {
		return o.types(built[stack.PartTemporalCLI], append([]string{"workflow", "signal", "--name", "extend",
			"--address", o.stack.TemporalAddress(), "--namespace", o.stack.TemporalNamespace()}, args...)...)
	}
	o.wants("temporal workflow signal", signal("-w", devicewf.ID(keys[0]), "--input", `{"actor":"temporal@example.com","reason":"by the CLI","for":"48h"}`), 0, "succeeded")
	o.awaitWord("the CLI's signal", "temporal@example.com", keys[0], func(d listing.Decision) bool {
		return d.Kind == quarantine.NoticeMessage && strings.HasPrefix(d.Identity, "temporal-cli:")
	})
	o.wants("a device without a case", signal("-w", "device/"+keys[0].Driver+"/node-3/gpu-1", "--input", `{"actor":"temporal@example.com","reason":"x"}`), 1, "not found")

	o.wants("a batch", signal("--query", "WorkflowType = 'device' AND ExecutionStatus = 'Running'", "--yes", "--reason", "the spares are late",
		"--input", `{"actor":"batch@example.com","reason":"the spares are late","for":"72h"}`), 0)
	for _, key := range keys {
		o.awaitWord("the batch's signal", "batch@example.com", key, func(d listing.Decision) bool { return d.Kind == quarantine.NoticeMessage })
	}

	// tctl 1.18, cli_curr/workflowCommands.go, SignalWorkflow: the RPC with these fields and
	// no request ID; util.go: the JSON read and written again, and the identity.
	_, err = o.temporal.WorkflowService().SignalWorkflowExecution(o.t.Context(), &workflowservice.SignalWorkflowExecutionRequest{
		Namespace: o.stack.TemporalNamespace(), WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: devicewf.ID(keys[0])}, SignalName: "extend",
		Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{{
			Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`{"actor":"tctl@example.com","for":"96h","reason":"by tctl"}`),
		}}},
		Identity: "tctl@laptop",
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.awaitWord("tctl's signal", "tctl@example.com", keys[0], func(d listing.Decision) bool {
		return d.Kind == quarantine.NoticeMessage && d.Identity == "tctl@laptop"
	})
}

// sendsWhatCannotBeRead sends signals that nobody can read: each is refused on record, and
// the case goes on.
func (o *operator) sendsWhatCannotBeRead(key device.Key) {
	o.t.Helper()
	plain := map[string][]byte{"encoding": []byte("json/plain")}
	broken := []*commonpb.Payloads{
		nil,
		{Payloads: []*commonpb.Payload{{Metadata: plain, Data: []byte(`{"actor":"ops@example.com",`)}}},
		{Payloads: []*commonpb.Payload{{Metadata: plain, Data: []byte(`{"actor":"ops@example.com","reason":"x","tiket":"7"}`)}}},
		{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte{0xff, 0}}}},
		{Payloads: []*commonpb.Payload{{}}},
	}
	for i, input := range broken {
		_, err := o.temporal.WorkflowService().SignalWorkflowExecution(o.t.Context(), &workflowservice.SignalWorkflowExecutionRequest{
			Namespace: o.stack.TemporalNamespace(), WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: devicewf.ID(key)},
			SignalName: "repaired", Input: input, Identity: fmt.Sprintf("broken-%d", i),
		})
		if err != nil {
			o.t.Fatal(err)
		}
	}
	for i := range broken {
		o.awaitWord(fmt.Sprintf("broken signal %d", i), "unnamed", key, func(d listing.Decision) bool {
			return d.Kind == quarantine.NoticeRefused && d.Alert && d.Identity == fmt.Sprintf("broken-%d", i) && strings.Contains(d.Text, "want JSON like")
		})
	}
	o.wants("the case goes on", o.types(o.binary, "extend", key.String(), "--reason", "all is well", "--for", "97h"), 0, ", until ")
}

// forces asks for a release past the gates: the refusal, with the gate, is in the answer,
// on the case's page, in its story, an Event and in the trail.
func (o *operator) forces(key device.Key) {
	o.t.Helper()
	const why = "release skips no gate, forced or not: gate Evidence is the first"
	o.wants("a forced release", o.types(o.binary, "release", key.String(), "--reason", "I know it works", "--actor", "eager@example.com", "--force"), 1,
		"sickbay: release refused for "+key.String()+": "+why)
	o.awaitWord("the refusal", "eager@example.com", key, func(d listing.Decision) bool {
		return d.Kind == quarantine.NoticeRefused && d.Alert && d.Gate == quarantine.GateEvidence && strings.Contains(d.Text, why)
	})
	o.wants("the story", o.types(o.binary, "device", key.String()), 0, "release by eager@example.com", why)
	o.eventually("the page shows the refusal", 20*time.Second, func(ctx context.Context) error {
		value, err := o.temporal.QueryWorkflow(ctx, devicewf.ID(key), "", "__temporal_workflow_metadata")
		if err != nil {
			return err
		}
		var metadata sdkpb.WorkflowMetadata
		if err := value.Get(&metadata); err != nil {
			return err
		}
		if page := metadata.GetCurrentDetails(); !strings.Contains(page, why) || !strings.Contains(page, "eager@example.com") {
			return fmt.Errorf("it says %s", page)
		}
		return nil
	})
	o.eventually("an Event tells of the refusal", 30*time.Second, func(ctx context.Context) error {
		found, err := o.eventsOn(ctx, "Node", corev1.NamespaceDefault, key.Pool)
		if err == nil && !strings.Contains(found[string(quarantine.NoticeRefused)].Message, "it would skip gate Evidence") {
			err = fmt.Errorf("it says %q", found[string(quarantine.NoticeRefused)].Message)
		}
		return err
	})
}

// releasesTwice sends two releases at once, each by signal and by update: each is on record
// once, and the device stays out.
func (o *operator) releasesTwice(key device.Key) {
	o.t.Helper()
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() {
			_, err := o.cases.Send(o.t.Context(), key, quarantine.Message{Verb: quarantine.VerbRelease, Actor: fmt.Sprintf("update-%d", i), Reason: "reseated"})
			if err != nil {
				o.t.Errorf("a release by update: %v", err)
			}
		})
		group.Go(func() {
			err := o.temporal.SignalWorkflow(o.t.Context(), devicewf.ID(key), "", "release", devicewf.OperatorPayload{Actor: fmt.Sprintf("signal-%d", i), Reason: "reseated"})
			if err != nil {
				o.t.Errorf("a release by signal: %v", err)
			}
		})
	}
	group.Wait()
	o.eventually("each release is on record once", 30*time.Second, func(context.Context) error {
		trail, said := o.trail(nil, "--since", "1h", "--actor", "update-*,signal-*", "--kind", "OperatorMessage")
		if said.code != 0 || len(trail.Decisions) != 4 {
			return fmt.Errorf("exit %d: %+v %s", said.code, trail.Decisions, said.err)
		}
		return nil
	})
	if s := o.awaitInForce(key); s.Phase != quarantine.PhaseQuarantined {
		o.t.Errorf("after four releases it is %s", s.Phase)
	}
}

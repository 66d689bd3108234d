package e2e

// This file is about the audit trail: what an operator finds of each decision in
// Events, in the log, in the directory and in Temporal.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

var updatePage = flag.Bool("update", false, "write what the commands of the pages say into them")

// eventsOn are Sickbay's Events on an object, by reason.
func (c *cluster) eventsOn(ctx context.Context, kind, namespace, name string) (map[string]corev1.Event, error) {
	list, err := c.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name,
	})
	if err != nil {
		return nil, err
	}
	found := map[string]corev1.Event{}
	for _, e := range list.Items {
		if e.Source.Component == "sickbay" {
			found[e.Reason] = e
		}
	}
	return found, nil
}

// awaitEvents waits until an object has Events of these reasons, and returns them.
func (c *cluster) awaitEvents(kind, namespace, name string, reasons ...string) map[string]corev1.Event {
	c.t.Helper()
	var found map[string]corev1.Event
	c.eventually(fmt.Sprintf("%s %s has the Events %v", kind, name, reasons), 30*time.Second, func(ctx context.Context) (err error) {
		found, err = c.eventsOn(ctx, kind, namespace, name)
		for _, reason := range reasons {
			if _, ok := found[reason]; !ok && err == nil {
				err = fmt.Errorf("has %v", slices.Sorted(maps.Keys(found)))
			}
		}
		return err
	})
	return found
}

// trail asks for the audit trail.
func (o *operator) trail(env []string, args ...string) (listing.Trail, answer) {
	o.t.Helper()
	command := exec.CommandContext(o.t.Context(), o.binary, append([]string{"audit", "-o", "json"}, args...)...)
	command.Env = slices.Concat(os.Environ(), product.Environment(o.stack), env)
	var out, failed strings.Builder
	command.Stdout, command.Stderr = &out, &failed
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		o.t.Fatal(err)
	}
	a := answer{code: command.ProcessState.ExitCode(), out: out.String(), err: failed.String()}
	var trail listing.Trail
	if err := json.Unmarshal([]byte(a.out), &trail); err != nil {
		o.t.Fatalf("audit %v: exit code %d, %v\n%s%s", args, a.code, err, a.out, a.err)
	}
	return trail, a
}

// An operator sees on the node and on the Pod that a device is out, and finds in
// the trail who decided what, why, and what was seen: the same from the directory
// as from Temporal, and as in the worker's log. What people wrote doesn't get into
// Events, which tenants read. Without Redis the trail is still whole. Proves a part of K3.
func TestTheTrailTellsWhoDecidedWhatAndWhy(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true, Redis: true}, 1, 3)
	redis := []string{"SICKBAY_REDIS_ADDRESSES=" + c.stack.RedisAddress()}
	c.process("worker", "worker", "", slices.Concat(fastEnvironment(), redis)...)
	c.process("starter", "starter", "", slices.Concat(starterEnvironment(), []string{"SICKBAY_NODE_RETURN=1s"}, redis)...)
	o := c.operator()
	key := c.runPod("train-0")
	c.eventually("the directory is claimed", 30*time.Second, func(context.Context) error {
		if trail, a := o.trail(redis, "--since", "0s"); a.code != 0 || !slices.Equal(trail.Sources, []string{listing.FromDirectory}) {
			return fmt.Errorf("exit code %d, sources %v: %s", a.code, trail.Sources, a.err)
		}
		return nil
	})
	began := time.Now().UTC()
	follows := o.follow(redis, "--since", "0s", "--kind", "OperatorMessage")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitInForce(key)
	c.awaitEvents("Node", "default", "node-0", "CaseOpened", "MarkInForce")
	opened := c.awaitEvents("Pod", "default", "train-0", "CaseOpened", "MarkInForce")["CaseOpened"]
	if opened.Type != corev1.EventTypeWarning || !strings.Contains(opened.Message, key.String()) || !strings.Contains(opened.Message, "XidFallenOffBus (fatal)") {
		t.Errorf("the Pod's Event is %s %q", opened.Type, opened.Message)
	}

	const why = "a spare is on its way"
	if _, err := c.cases.Send(t.Context(), key, quarantine.Message{Verb: quarantine.VerbExtend, Actor: "oncall@example.com", Reason: why}); err != nil {
		t.Fatal(err)
	}
	for _, object := range [][3]string{{"Node", "default", "node-0"}, {"Pod", "default", "train-0"}} {
		for reason, e := range c.awaitEvents(object[0], object[1], object[2], "OperatorMessage") {
			if strings.Contains(e.Message, why) || strings.Contains(e.Message, "oncall") {
				t.Errorf("Event %s on %s repeats what a person wrote: %q", reason, object[0], e.Message)
			}
		}
	}
	if line := follows(); !strings.Contains(line, why) || !strings.Contains(line, `"actor":"oncall@example.com"`) {
		t.Errorf("--follow showed %q", line)
	}

	// The same from each place.
	var fromDirectory, fromTemporal listing.Trail
	c.eventually("the directory and Temporal tell the same", 30*time.Second, func(context.Context) error {
		var a, b answer
		fromDirectory, a = o.trail(redis, "--since", began.Format(time.RFC3339Nano))
		fromTemporal, b = o.trail(nil, "--since", began.Format(time.RFC3339Nano))
		if a.code != 0 || b.code != 0 {
			return fmt.Errorf("exit codes %d and %d: %s%s", a.code, b.code, a.err, b.err)
		}
		if len(fromTemporal.Decisions) < 3 || !slices.Equal(fromDirectory.Decisions, fromTemporal.Decisions) {
			return fmt.Errorf("%+v\n%+v", fromDirectory.Decisions, fromTemporal.Decisions)
		}
		return nil
	})
	if !slices.Equal(fromDirectory.Sources, []string{listing.FromDirectory}) || !slices.Equal(fromTemporal.Sources, []string{listing.FromTemporal}) {
		t.Errorf("sources %v and %v", fromDirectory.Sources, fromTemporal.Sources)
	}
	logged := map[string]map[string]any{}
	for _, line := range c.logged("worker", "decision") {
		logged[fmt.Sprint(line["device"], line["epoch"], line["seq"])] = line
	}
	for _, d := range fromDirectory.Decisions {
		line := logged[fmt.Sprint(d.Name, float64(d.Epoch), d.Seq)]
		if d.Node != "node-0" || d.Text == "" || d.Actor == "" || line["text"] != d.Text || line["seen"] != d.Seen || line["actor"] != d.Actor {
			t.Errorf("decision %+v, log line %v", d, line)
		}
		if d.Kind == quarantine.NoticeOpened && !strings.Contains(d.Seen, fallenOff) {
			t.Errorf("the case was opened on what was seen: %q", d.Seen)
		}
	}
	said, _ := o.trail(redis, "--since", "10m", "--actor", "oncall@*", "--device", key.String(), "--node", "node-*", "--driver", key.Driver, "--kind", "operatormessage")
	if len(said.Decisions) != 1 || !strings.Contains(said.Decisions[0].Seen, why) {
		t.Errorf("oncall's decisions are %+v", said.Decisions)
	}
	if none, _ := o.trail(redis, "--actor", "nobody@*"); len(none.Decisions) != 0 {
		t.Errorf("nobody decided %+v", none.Decisions)
	}
	o.wants("a kind misspelt", o.types(o.binary, "audit", "--kind", "CaseOpend"), 2, "did you mean CaseOpened?")
	o.wants("follow without a directory", o.types(o.binary, "audit", "--follow"), 2, "SICKBAY_REDIS_ADDRESSES")

	t.Run("the page says what its commands do", func(t *testing.T) {
		pages.Run(t, pages.Page{
			Path: "docs/audit.md", Update: *updatePage,
			Env: slices.Concat(product.Environment(o.stack), redis, pages.Terminal(t, o.binary)),
		})
	})

	o.findsTheSameInTheDirectory(key, redis)

	c.kill("redis")
	o.env = redis
	for _, from := range []string{"cluster", "directory"} {
		code := map[string]int{"cluster": 0, "directory": 3}[from]
		o.wants("devices from the "+from+" without Redis", o.types(o.binary, "devices", "--from", from), code,
			"the device directory is away", "Quarantined", key.String())
	}
	o.wants("a story without Redis", o.types(o.binary, "device", key.String()), 0, "the device directory is away")
	away, a := o.trail(redis, "--since", began.Format(time.RFC3339Nano))
	if a.code != 3 || !strings.Contains(a.err, "the directory is away") || !slices.Equal(away.Decisions, fromTemporal.Decisions) {
		t.Errorf("without Redis: exit code %d, %q, %+v", a.code, a.err, away.Decisions)
	}
}

// findsTheSameInTheDirectory compares what the directory answers with what the
// cluster does: the same but for what the directory doesn't have, also of a node that
// is out. O4, O6: its Pods' Healthy is none in either.
func (o *operator) findsTheSameInTheDirectory(sick device.Key, redis []string) {
	o.t.Helper()
	well := o.runPod("train-1")
	o.wants("from a directory that isn't configured", o.types(o.binary, "devices", "--from", "directory"), 2, "SICKBAY_REDIS_ADDRESSES")
	before := o.env
	o.env = redis
	defer func() { o.env = before }()
	list := func(from string) ([]listing.Device, error) {
		a := o.types(o.binary, "devices", "-o", "json", "--from", from)
		var read listing.Listing
		if err := json.Unmarshal([]byte(a.out), &read); err != nil || a.code != 0 || a.err != "" {
			return nil, fmt.Errorf("devices --from %s: exit code %d, %w: %s", from, a.code, err, a.err)
		}
		for i := range read.Devices {
			if d := read.Devices[i]; d.Health != "" && d.Stale == "" && d.NodeOut == "" && (d.Age == nil || d.Age.Confirmed == nil || read.At.Sub(*d.Age.Confirmed) > 2*time.Minute) {
				return nil, fmt.Errorf("devices --from %s: %s is %s, and its age %+v", from, d.Name, d.Health, d.Age)
			}
			read.Devices[i].Age = nil // each knows of another moment
			if len(read.Devices[i].Holders) == 0 {
				read.Devices[i].Classes = nil // of a device that nobody holds, the directory has none
			}
		}
		return read.Devices, nil
	}
	alike := func(what string, check func(listing.Device) error) {
		o.t.Helper()
		o.eventually("directory and cluster answer alike "+what, 45*time.Second, func(context.Context) error {
			cluster, err := list("cluster")
			if err != nil {
				return err
			}
			directory, err := list("directory")
			if err == nil && !reflect.DeepEqual(cluster, directory) {
				err = fmt.Errorf("cluster\n%+v\ndirectory\n%+v", cluster, directory)
			}
			for _, d := range cluster {
				if d.Name == well.String() && err == nil {
					err = check(d)
				}
			}
			return err
		})
	}
	healthy := func(d listing.Device) error {
		if d.Health != device.Healthy || d.NodeOut != "" {
			return fmt.Errorf("%s is %s (%s), its node %q", d.Name, d.Health, d.Stale, d.NodeOut)
		}
		return nil
	}
	alike("", healthy)
	o.setReady(false)
	alike("while a node is out", func(d listing.Device) error {
		if d.Health != device.Unknown || d.Stale != device.NodeNotReady || d.NodeOut != device.NodeNotReady {
			return fmt.Errorf("%s is %s (%s), its node %q", d.Name, d.Health, d.Stale, d.NodeOut)
		}
		return nil
	})
	o.wants("a device of a node that is out", o.types(o.binary, "device", well.String()), 0,
		well.String()+" can't be judged now: its node node-0 is out (NodeNotReady)", "Healthy (NodeNotReady)", "Next: its node has to come back")
	for _, from := range []string{"cluster", "directory"} {
		o.wants("devices from the "+from+" of a node that is out", o.types(o.binary, "devices", "--from", from, "--reason", "NodeNotReady"), 0, "1 node is out: node-0 (NodeNotReady, ")
	}
	o.setReady(true)
	alike("when it is back", healthy)
	o.wants("a name that isn't in the directory", o.types(o.binary, "devices", "--from", "directory", sick.String()+"0"), 4, "did you mean "+sick.String())
	o.wants("unmapped faults of the directory", o.types(o.binary, "devices", "--from", "directory", "--unmapped"), 2, "leave --from directory out")
	o.wants("somewhere else", o.types(o.binary, "devices", "--from", "redis"), 2, "want cluster or directory")
}

// setReady has the kubelet of node-0 say whether it is ready.
func (o *operator) setReady(ready bool) {
	o.t.Helper()
	if err := o.nodes.SetReady(o.t.Context(), "node-0", ready, "KubeletNotReady", "container runtime is down"); err != nil {
		o.t.Fatal(err)
	}
}

// follow runs `sickbay audit --follow` and returns what waits for its first line.
// It returns once the directory was asked.
func (o *operator) follow(env []string, args ...string) (line func() string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 90*time.Second)
	command := exec.CommandContext(ctx, o.binary, append([]string{"audit", "--follow", "-o", "json"}, args...)...)
	command.Env = slices.Concat(os.Environ(), product.Environment(o.stack), env)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	out, err := command.StdoutPipe()
	if err != nil {
		o.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		o.t.Fatal(err)
	}
	ended := sync.OnceFunc(func() {
		cancel()
		// Wait says that it was interrupted, whatever the command made of that.
		if err := command.Wait(); command.ProcessState.ExitCode() != 0 {
			o.t.Errorf("audit --follow, interrupted, ended with %v", err)
		}
	})
	o.t.Cleanup(ended)
	return func() string {
		o.t.Helper()
		text, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			o.t.Errorf("audit --follow: %v", err)
		}
		ended()
		return text
	}
}

// publish runs what publishes Events with a user's rights, and no others.
func (c *cluster) publish(user string, refusedFor time.Duration) *activities.Events {
	c.t.Helper()
	config, err := c.stack.UserConfig(user)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.publishAs(config, refusedFor)
}

func (c *cluster) publishAs(config *rest.Config, refusedFor time.Duration) *activities.Events {
	c.t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200 // as a worker has
	events, err := activities.NewEvents(kubernetes.NewForConfigOrDie(config).CoreV1(), c.cases, quiet(), prometheus.NewRegistry())
	if err != nil {
		c.t.Fatal(err)
	}
	events.RefusedFor = refusedFor
	ctx, cancel := context.WithCancel(c.t.Context())
	var running sync.WaitGroup
	running.Go(func() { events.Run(ctx) })
	c.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return events
}

// openHeld opens a real case of a device that a Pod holds.
func (c *cluster) openHeld() device.Key {
	c.t.Helper()
	c.work(fastPolicy())
	key := c.runPod("train-0")
	if err := c.cases.Open(c.t.Context(), key, c.fault(key, "train-0", fallenOff, "41"), ""); err != nil {
		c.t.Fatal(err)
	}
	c.awaitCase(key, "knows its holder", func(s quarantine.Case) error {
		if len(s.Holders) != 1 {
			return fmt.Errorf("holders %v", s.Holders)
		}
		return nil
	})
	return key
}

func eventRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}}
}

// manyDecisions are decisions of many kinds and reasons, as a device in trouble
// makes them.
func manyDecisions(n int) []quarantine.Notice {
	kinds := activities.Kinds()
	notices := make([]quarantine.Notice, n)
	for i := range notices {
		notices[i] = quarantine.Notice{
			Seq: int64(i + 1), At: time.Now(), Kind: quarantine.NoticeKind(kinds[i%len(kinds)]), Phase: quarantine.PhaseQuarantined,
			Reason: fmt.Sprintf("Reason%d", i%40), Actor: "sickbay", Text: "again",
		}
	}
	return notices
}

// A thousand decisions about one device become a few Events on its node and its
// Pod, some of them counted, and not a thousand calls.
func TestAThousandDecisionsDoNotBecomeAThousandEvents(t *testing.T) {
	const user = "events-only"
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	c.grantRules(user, eventRights())
	key := c.openHeld()
	events := c.publish(user, time.Second)
	// The last one is about another device: once it is there, the thousand are done.
	other := c.runPod("train-1")
	if err := c.cases.Open(t.Context(), other, c.fault(other, "train-1", fallenOff, "42"), ""); err != nil {
		t.Fatal(err)
	}
	c.awaitCase(other, "knows its holder", func(s quarantine.Case) error {
		if len(s.Holders) != 1 {
			return fmt.Errorf("holders %v", s.Holders)
		}
		return nil
	})
	events.Announce(key, manyDecisions(1000))
	events.Announce(other, []quarantine.Notice{{Kind: quarantine.NoticeClosed, Phase: quarantine.PhaseClosed, Reason: "Last"}})
	c.eventually("the last decision is on its Pod", 60*time.Second, func(ctx context.Context) error {
		list, err := c.kube.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=train-1"})
		if err == nil && !slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "Last") }) {
			err = fmt.Errorf("%d Events", len(list.Items))
		}
		return err
	})
	calls, err := c.stack.Calls(user)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]int{}
	for _, call := range calls {
		made[call.Verb]++
	}
	t.Logf("calls %v", made)
	if total := made["create"] + made["patch"]; total == 0 || total > 60 || len(made) > 2 {
		t.Errorf("a thousand decisions made the calls %v, want some, and at most 25 for each of two objects", made)
	}
	for _, object := range [][2]string{{"Node", key.Pool}, {"Pod", "train-0"}} {
		if found, err := c.eventsOn(t.Context(), object[0], "default", object[1]); err != nil || len(found) < 10 {
			t.Errorf("%s %s has only the Events %v, error %v", object[0], object[1], slices.Sorted(maps.Keys(found)), err)
		}
	}
	// What says the same again is counted, by the account that is shipped.
	events = c.publishAs(c.accounts.Worker.Config, time.Second)
	again := quarantine.Notice{Kind: quarantine.NoticeExtended, Phase: quarantine.PhaseQuarantined, Reason: "SameAgain"}
	events.Announce(other, []quarantine.Notice{again, again, again})
	c.eventually("the repeated decision is counted in one Event", 30*time.Second, func(ctx context.Context) error {
		list, err := c.kube.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=train-1,reason=LeaseExtended"})
		if err == nil && (len(list.Items) != 1 || list.Items[0].Count != 3) {
			err = fmt.Errorf("%d Events: %+v", len(list.Items), list.Items)
		}
		return err
	})
}

// Without the right for Events a fault is marked, logged and in the trail as ever;
// the worker says once what is missing and what to do.
func TestWithoutTheRightForEventsNothingElseSuffers(t *testing.T) {
	const user = "no-events"
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	c.grantRules(user, append(readRules(), rbacv1.PolicyRule{
		APIGroups: []string{"resource.k8s.io"}, Resources: []string{"devicetaintrules"}, Verbs: []string{"create", "update", "delete"},
	}))
	kubeconfig, err := c.stack.UserKubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	c.process("worker", "worker", kubeconfig, fastEnvironment()...)
	c.process("starter", "starter", "", starterEnvironment()...)
	for _, pod := range []string{"train-0", "train-1"} {
		key := c.runPod(pod)
		c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
		c.awaitInForce(key)
	}
	o := c.operator()
	c.eventually("the trail has both cases", 30*time.Second, func(context.Context) error {
		if trail, _ := o.trail(nil, "--kind", "MarkInForce"); len(trail.Decisions) != 2 {
			return fmt.Errorf("%+v", trail.Decisions)
		}
		return nil
	})
	refusals := func() (lines []string) {
		log, err := os.ReadFile(c.stack.Log("worker"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "events is forbidden") || strings.Contains(line, "published as Kubernetes Events") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	c.eventually("the missing right is said", 30*time.Second, func(context.Context) error {
		if len(refusals()) == 0 {
			return errors.New("it isn't")
		}
		return nil
	})
	if lines := refusals(); len(lines) != 1 || !strings.Contains(lines[0], "Grant create and patch on events") {
		t.Errorf("it is said %d times: %v", len(lines), lines)
	}
	if found, err := c.eventsOn(t.Context(), "Pod", "default", "train-0"); err != nil || len(found) != 0 {
		t.Errorf("Events %v, error %v", found, err)
	}
}

// Once the right is granted, Events come without a restart.
func TestEventsComeOnceTheirRightIsGranted(t *testing.T) {
	const user = "later"
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	key := c.openHeld()
	events := c.publish(user, time.Second)
	refused := func() int {
		calls, err := c.stack.Calls(user)
		if err != nil {
			t.Fatal(err)
		}
		return len(calls)
	}
	events.Announce(key, []quarantine.Notice{{Kind: quarantine.NoticeOpened, Phase: quarantine.PhaseQuarantined}})
	c.eventually("it was refused", 20*time.Second, func(context.Context) error {
		if refused() == 0 {
			return errors.New("it wasn't asked for")
		}
		return nil
	})
	c.grantRules(user, eventRights())
	announced := 0
	c.eventually("Events are published", 30*time.Second, func(ctx context.Context) error {
		// Each is another decision; the pause after the refusal has to be over.
		announced++
		events.Announce(key, []quarantine.Notice{{Kind: quarantine.NoticeMarkInForce, Phase: quarantine.PhaseQuarantined, Reason: fmt.Sprintf("Try%d", announced)}})
		found, err := c.eventsOn(ctx, "Pod", "default", "train-0")
		if err == nil && !strings.Contains(found["MarkInForce"].Message, "Try") {
			err = fmt.Errorf("Events %v", slices.Sorted(maps.Keys(found)))
		}
		return err
	})
}

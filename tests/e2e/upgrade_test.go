package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// version is one of the two that take part in an upgrade.
type version string

const (
	older version = "older"
	newer version = "newer"
)

// drill is a fleet with open cases, and the processes of two versions that carry
// them on.
type drill struct {
	*cluster
	binary map[version]string
	// version is that of each worker, and of each starter, by how it names itself to
	// Temporal and to the API server: what stands behind the last slash is its PID.
	version map[string]version
	workers []string
	// opened are the cases as they were when they had come to rest.
	opened map[device.Key]quarantine.Case
	// restored counts how often each mark was deleted by hand.
	restored map[device.Key]int
	// messages is how many were sent.
	messages int
	// held is a quarantined device that a Pod has; spare are devices that are well.
	held, suspect, retired, gone device.Key
	spare                        []device.Key
}

// run starts a process of a version.
func (d *drill) run(v version, name, command string, env ...string) {
	d.t.Helper()
	_, err := product.Start(d.t.Context(), d.stack, product.Service{
		Binary: d.binary[v], Earlier: v == older, Command: command, Name: name, Env: append([]string{"SICKBAY_LOG_LEVEL=debug"}, env...),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.version[fmt.Sprint(d.stack.PID(name))] = v
	if command == "worker" {
		d.workers = append(d.workers, name)
	}
}

func (d *drill) worker(v version, name string) {
	d.t.Helper()
	// A suspicion has to last as long as the drill.
	d.run(v, name, "worker", append(fastEnvironment(), "SICKBAY_GRACE=1h", "SICKBAY_STOP_TIMEOUT=5s")...)
}

func (d *drill) starter(v version, name string) {
	d.t.Helper()
	// An older starter refuses variables that came after it.
	d.run(v, name, "starter", "SICKBAY_MARK_CHECK=1s")
}

// ends ends a process as an update of its Deployment does.
func (d *drill) ends(name string) {
	d.t.Helper()
	if err := d.stack.StopPart(d.t.Context(), name); err != nil {
		d.t.Fatal(err)
	}
}

// of tells the version of who names itself so, "sickbay-worker@host/4711".
func (d *drill) of(identity string) version {
	return d.version[identity[strings.LastIndex(identity, "/")+1:]]
}

// open waits until a device's case has come to rest, and keeps what it is like.
func (d *drill) open(key device.Key, phase quarantine.Phase) {
	d.t.Helper()
	d.opened[key] = d.awaitCase(key, "comes to rest as "+string(phase), func(c quarantine.Case) error {
		marked := phase != quarantine.PhaseSuspect
		if c.Phase != phase || marked != (c.Mark.State == quarantine.MarkInForce) || c.Mark.Written != c.Mark.Revision {
			return fmt.Errorf("%s %s, mark %s %s", c.Phase, c.Waiting, c.Mark.State, c.Mark.Detail)
		}
		return nil
	})
}

// marked are the devices that a mark keeps out.
func (d *drill) marked() []device.Key {
	var keys []device.Key
	for key, c := range d.opened {
		if c.Mark.State == quarantine.MarkInForce {
			keys = append(keys, key)
		}
	}
	return keys
}

// talk sends each case a message, and another round of them until what is wanted has
// happened. A case that has no use for the message refuses it on record.
func (d *drill) talk(until string, happened func(context.Context) error) {
	d.t.Helper()
	d.eventually(until, 60*time.Second, func(ctx context.Context) error {
		for key := range d.opened {
			d.messages++
			if err := d.extend(ctx, key, d.operator(d.messages), true); err != nil {
				return err
			}
		}
		d.heard()
		return happened(ctx)
	})
}

func (d *drill) operator(message int) string { return fmt.Sprintf("ops-%d@example.com", message) }

// heard waits until each message that was sent stands in the audit trail. A look that a
// killed worker took with it is under way for 30 s, and a run of the older version that is
// about to end says nothing before that.
func (d *drill) heard() {
	d.t.Helper()
	d.eventually("every message is on record", 90*time.Second, func(context.Context) error {
		actors := map[string]bool{}
		for _, worker := range d.workers {
			for _, decision := range d.logged(worker, "decision") {
				actors[fmt.Sprint(decision["actor"])] = true
			}
		}
		for message := 1; message <= d.messages; message++ {
			if !actors[d.operator(message)] {
				return fmt.Errorf("that of %s is missing", d.operator(message))
			}
		}
		return nil
	})
}

// deletesMark deletes a mark by hand and waits until its case put it back.
func (d *drill) deletesMark(key device.Key) {
	d.t.Helper()
	d.deleteRule(d.opened[key].Mark.Name)
	d.restored[key]++
	d.awaitCase(key, "puts its mark back", func(c quarantine.Case) error {
		if c.Mark.Restored != d.restored[key] || c.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("mark %s, restored %d times, want %d", c.Mark.State, c.Mark.Restored, d.restored[key])
		}
		return nil
	})
}

// leads waits until a starter of this version holds the Lease.
func (d *drill) leads(v version) {
	d.t.Helper()
	d.eventually(fmt.Sprintf("the %s starter leads", v), 60*time.Second, func(ctx context.Context) error {
		lease, err := d.kube.CoordinationV1().Leases(deploy.Namespace).Get(ctx, "sickbay-starter", getOptions)
		if err != nil {
			return err
		}
		if holder := lease.Spec.HolderIdentity; holder == nil || d.of(*holder) != v {
			return fmt.Errorf("the Lease is %+v", lease.Spec)
		}
		return nil
	})
}

// asks wants the commands of both versions to tell the same of a case that is marked
// and of one that isn't, which is what its workflow says whoever answers for it.
func (d *drill) asks() {
	d.t.Helper()
	for _, key := range []device.Key{d.held, d.suspect} {
		c := d.opened[key]
		for v, binary := range d.binary {
			var story listing.Story
			o := operator{cluster: d.cluster, binary: binary}
			a := o.types(binary, "device", key.String(), "-o", "json")
			if err := json.Unmarshal([]byte(a.out), &story); err != nil || a.code != 0 {
				d.t.Errorf("the %s command tells of %s with exit code %d, %v\n%s%s", v, key, a.code, err, a.out, a.err)
				continue
			}
			if story.Case == nil || story.Case.Phase != c.Phase || story.Case.Epoch != c.Epoch || (story.MarkFound != nil) != (c.Mark.State == quarantine.MarkInForce) {
				d.t.Errorf("the %s command tells of %s: case %+v, mark %+v; want %s in epoch %d", v, key, story.Case, story.MarkFound, c.Phase, c.Epoch)
			}
		}
	}
}

// run is one run of a case's workflow, by who did its tasks.
type run struct {
	open bool
	// tasks are the versions of the workers that did the workflow's tasks, in their
	// order, and acted those of the workers that ran its activities.
	tasks []version
	acted []version
}

// passes tells whether a worker of one version carried on a run that another one of
// the other version had worked on.
func (r run) passes(from, to version) bool {
	for i := 1; i < len(r.tasks); i++ {
		if r.tasks[i-1] == from && r.tasks[i] == to {
			return true
		}
	}
	return false
}

// runs reads the histories of all workflows. A workflow task that failed fails the
// test, but for two: a message that arrives while a run is about to end makes the
// server refuse the end, and an older worker knows no workflow that came after it.
func (d *drill) runs(ctx context.Context) ([]run, error) {
	list, err := d.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000})
	if err != nil {
		return nil, err
	}
	var all []run
	for _, info := range list.GetExecutions() {
		id, runID := info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()
		r := run{open: info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}
		events := d.temporal.GetWorkflowHistory(ctx, id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			if err != nil {
				return nil, err
			}
			switch a := event.GetAttributes().(type) {
			case *historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes:
				r.tasks = append(r.tasks, d.of(a.WorkflowTaskCompletedEventAttributes.GetIdentity()))
			case *historypb.HistoryEvent_ActivityTaskStartedEventAttributes:
				r.acted = append(r.acted, d.of(a.ActivityTaskStartedEventAttributes.GetIdentity()))
			case *historypb.HistoryEvent_WorkflowTaskFailedEventAttributes:
				failed := a.WorkflowTaskFailedEventAttributes
				message := failed.GetFailure().GetMessage()
				unknown := d.of(failed.GetIdentity()) == older && info.GetType().GetName() != devicewf.WorkflowType &&
					strings.HasPrefix(message, "unable to find workflow type")
				if failed.GetCause() != enumspb.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND && !unknown {
					d.t.Fatalf("a task of %s failed on a %s worker: %s: %s", id, d.of(failed.GetIdentity()), failed.GetCause(), message)
				}
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// sideBySide wants both versions to have done tasks and activities, and one of them
// to have done the last task of a run that is open. earlier is how many tasks and
// activities were done before both were there.
func (d *drill) sideBySide(earlier map[string]int, last version) func(context.Context) error {
	return func(ctx context.Context) error {
		runs, err := d.runs(ctx)
		if err != nil {
			return err
		}
		done := count(runs)
		for _, what := range []string{"tasks of " + string(older), "tasks of " + string(newer), "activities of " + string(older), "activities of " + string(newer)} {
			if done[what] == earlier[what] {
				return fmt.Errorf("no %s", what)
			}
		}
		if !slices.ContainsFunc(runs, func(r run) bool { return r.open && len(r.tasks) > 0 && r.tasks[len(r.tasks)-1] == last }) {
			return fmt.Errorf("no open run was carried on last by a %s worker", last)
		}
		return nil
	}
}

func count(runs []run) map[string]int {
	done := map[string]int{}
	for _, r := range runs {
		for _, v := range r.tasks {
			done["tasks of "+string(v)]++
		}
		for _, v := range r.acted {
			done["activities of "+string(v)]++
		}
	}
	return done
}

// passed wants a run that a worker of one version took over from one of the other.
func (d *drill) passed(from, to version) func(context.Context) error {
	return func(ctx context.Context) error {
		runs, err := d.runs(ctx)
		if err == nil && !slices.ContainsFunc(runs, func(r run) bool { return r.passes(from, to) }) {
			err = fmt.Errorf("no %s worker took a run over from a %s one", to, from)
		}
		return err
	}
}

// whole wants every case to be as it was opened, and every mark in force.
func (d *drill) whole() {
	d.t.Helper()
	for key, was := range d.opened {
		d.awaitCase(key, "is as it was opened", func(c quarantine.Case) error {
			if c.Epoch != was.Epoch || c.Phase != was.Phase || c.Mark.State != was.Mark.State || c.Mark.Restored != d.restored[key] {
				return fmt.Errorf("%s in epoch %d, mark %+v; want %s in epoch %d, mark %s restored %d times",
					c.Phase, c.Epoch, c.Mark, was.Phase, was.Epoch, was.Mark.State, d.restored[key])
			}
			return nil
		})
		if was.Mark.State != quarantine.MarkInForce {
			continue
		}
		mark, err := d.marks.Read(d.t.Context(), key)
		if err != nil || mark == nil || !mark.Intact || mark.Found.Epoch != was.Epoch {
			d.t.Errorf("the mark of %s is %+v, %v; want it intact in epoch %d", key, mark, err, was.Epoch)
		}
	}
	if rules, err := d.rules(d.t.Context()); err != nil || len(rules) != len(d.marked()) {
		d.t.Errorf("%d marks, %v; want %d", len(rules), err, len(d.marked()))
	}
	if got := d.workflows(); got != len(d.opened) {
		d.t.Errorf("%d workflows, want one for each of %d cases", got, len(d.opened))
	}
}

// quietLogs wants no worker to have lifted a mark, closed a case, or choked on a
// history.
func (d *drill) quietLogs() {
	d.t.Helper()
	for _, worker := range d.workers {
		for _, decision := range d.logged(worker, "decision") {
			if kind := decision["kind"]; kind == string(quarantine.NoticeMarkLifted) || kind == string(quarantine.NoticeClosed) {
				d.t.Errorf("%s decided %v", worker, decision)
			}
		}
		data, err := os.ReadFile(d.stack.Log(worker))
		if err != nil {
			d.t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if text := strings.ToLower(lines.Text()); strings.Contains(text, "nondeterminis") || strings.Contains(text, "panic") {
				d.t.Errorf("%s says %s", worker, lines.Text())
			}
		}
	}
}

// Open cases of the earliest version from which an upgrade is promised go on under
// this one, under both side by side, and under that one again: none is lost, none
// begins anew, and no mark is lifted. The page about it is followed meanwhile.
// Proves a part of K4, and of Q4.
func TestOpenCasesGoOnThroughAnUpgradeAndBack(t *testing.T) {
	corpus := filepath.Join("..", "..", "workflows", "device", "testdata", product.EarliestUpgradable[:7])
	if _, err := os.Stat(corpus); err != nil {
		t.Errorf("the histories of the earliest version aren't in the replay corpus: %v", err)
	}
	earlier, err := product.BuildEarlier(t.Context(), product.EarliestUpgradable)
	if errors.Is(err, product.ErrNoHistory) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	current, err := product.Shared()
	if err != nil {
		t.Fatal(err)
	}
	// Runs are so short that the cases pass from run to run as well as from worker
	// to worker.
	c := start(t, stack.Options{
		Kubernetes: "1.37", Temporal: true,
		DynamicConfig: map[string]any{"limit.historyCount.suggestContinueAsNew": 60},
	}, 1, 8)
	d := &drill{
		cluster: c, binary: map[version]string{older: earlier, newer: current}, version: map[string]version{},
		opened: map[device.Key]quarantine.Case{}, restored: map[device.Key]int{},
	}
	d.begin()
	d.speaks()
	steps := map[string][]func(){
		"temporal workflow count":                      {func() {}, d.upgradeWorkers, d.goBack},
		"kubectl -n sickbay get lease sickbay-starter": {func() {}, d.upgradeStarter},
	}
	pages.Run(t, pages.Page{
		Path: "docs/upgrade.md", Env: d.terminal(), Update: *updatePage,
		Before: func(command string) {
			for prefix, next := range steps {
				if strings.HasPrefix(command, prefix) && len(next) > 0 {
					steps[prefix] = next[1:]
					next[0]()
				}
			}
		},
	})
	for prefix, left := range steps {
		if len(left) > 0 {
			t.Errorf("the page doesn't come to the rest of the drill, at %s", prefix)
		}
	}
	d.quietLogs()
	all, err := d.runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cases in %d runs, %d messages; %v", len(d.opened), len(all), d.messages, count(all))
}

// begin lets devices of the older version fail, each in its own way.
func (d *drill) begin() {
	d.t.Helper()
	d.worker(older, "worker-1")
	d.worker(older, "worker-2")
	d.starter(older, "starter-1")
	held, suspect, retired, gone := d.runPod("train-0"), d.runPod("train-1"), d.runPod("train-2"), d.runPod("train-3")
	d.spare = []device.Key{d.runPod("train-4"), d.runPod("train-5"), d.runPod("train-6")}
	d.leads(older)
	for _, key := range []device.Key{held, retired, gone} {
		d.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
		d.open(key, quarantine.PhaseQuarantined)
	}
	d.set(suspect, corev1.ResourceHealthStatusUnknown, "")
	d.open(suspect, quarantine.PhaseSuspect)
	if _, err := d.nodes.RemoveDevice(d.t.Context(), gone.Pool, gone.Device); err != nil {
		d.t.Fatal(err)
	}
	d.open(gone, quarantine.PhaseGone)
	if _, err := d.cases.Send(d.t.Context(), retired, quarantine.Message{Verb: quarantine.VerbRetire, Actor: "oncall@example.com", Reason: "it failed again"}); err != nil {
		d.t.Fatal(err)
	}
	d.open(retired, quarantine.PhaseRetired)
	d.held, d.suspect, d.retired, d.gone = held, suspect, retired, gone
	d.talk("the older workers do all", func(context.Context) error { return nil })
	d.listed()
}

// upgradeWorkers lets a newer worker join, and the older ones leave, one of them all
// at once.
func (d *drill) upgradeWorkers() {
	d.t.Helper()
	before := d.done()
	d.worker(newer, "worker-3")
	d.talk("both versions work side by side", d.sideBySide(before, older))
	d.deletesMark(d.held)
	d.deletesMark(d.retired)
	d.fails()
	d.asks()
	d.kill("worker-1")
	d.talk("a message is heard after a worker was killed", func(context.Context) error { return nil })
	d.talk("an older worker is about to leave", d.sideBySide(nil, older))
	d.ends("worker-2")
	d.talk("the newer worker takes over", d.passed(older, newer))
	d.deletesMark(d.held)
	d.asks()
	d.listed()
}

// upgradeStarter lets the newer starter stand by, and take the Lease over.
func (d *drill) upgradeStarter() {
	d.t.Helper()
	d.starter(newer, "starter-2")
	d.leads(older)
	d.ends("starter-1")
	d.leads(newer)
	d.fails()
	d.deletesMark(d.gone)
	d.whole()
}

// goBack puts the older version in the newer one's place, in the other order.
func (d *drill) goBack() {
	d.t.Helper()
	before := d.done()
	d.starter(older, "starter-3")
	d.ends("starter-2")
	d.leads(older)
	d.worker(older, "worker-4")
	d.talk("both versions work side by side again", d.sideBySide(before, newer))
	d.ends("worker-3")
	d.talk("the older worker takes over", d.passed(newer, older))
	d.fails()
	d.deletesMark(d.retired)
	d.asks()
	d.whole()
	d.listed()
}

// fails lets the next device fail that is well.
func (d *drill) fails() {
	d.t.Helper()
	key := d.spare[0]
	d.spare = d.spare[1:]
	d.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	d.open(key, quarantine.PhaseQuarantined)
}

// done counts the tasks and activities that were done so far.
func (d *drill) done() map[string]int {
	d.t.Helper()
	runs, err := d.runs(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return count(runs)
}

// listed waits until Temporal lists each open case: it does so a little later.
func (d *drill) listed() {
	d.t.Helper()
	d.eventually("Temporal lists the cases", 30*time.Second, func(ctx context.Context) error {
		answer, err := d.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Query: "WorkflowType = 'device' AND ExecutionStatus = 'Running'",
		})
		if err == nil && answer.GetCount() != int64(len(d.opened)) {
			err = fmt.Errorf("%d of %d", answer.GetCount(), len(d.opened))
		}
		return err
	})
}

// speaks wants the cluster to serve what the newer version says that it speaks.
func (d *drill) speaks() {
	d.t.Helper()
	var version struct {
		Speaks struct {
			Kubernetes struct {
				Client string
				APIs   []kube.Spoken
			}
			Temporal struct{ API, SDK string }
		}
	}
	o := operator{cluster: d.cluster, binary: d.binary[newer]}
	a := o.types(o.binary, "version", "-o", "json")
	if err := json.Unmarshal([]byte(a.out), &version); err != nil {
		d.t.Fatalf("version: %v\n%s%s", err, a.out, a.err)
	}
	says := version.Speaks
	for _, module := range []string{says.Kubernetes.Client, says.Temporal.API, says.Temporal.SDK} {
		if !strings.HasPrefix(module, "v") {
			d.t.Errorf("version says %+v: a module's version is missing", says)
		}
	}
	for _, api := range says.Kubernetes.APIs {
		served := slices.ContainsFunc(api.Versions, func(version string) bool {
			list, err := d.discovery.ServerResourcesForGroupVersion(strings.TrimPrefix(api.Group+"/"+version, "/"))
			return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == api.Resource })
		})
		if !served {
			d.t.Errorf("version says that it speaks %+v, and the cluster serves no such thing", api)
		}
	}
	if len(says.Kubernetes.APIs) == 0 {
		d.t.Error("version names no API of Kubernetes")
	}
}

// terminal is where an operator types the page's commands.
func (d *drill) terminal() []string {
	d.t.Helper()
	parts, err := stack.CommandParts()
	if err != nil {
		d.t.Fatal(err)
	}
	built, err := stack.Build(d.t.Context(), os.Stderr, parts...)
	if err != nil {
		d.t.Fatal(err)
	}
	programs := []string{d.binary[newer]}
	for _, program := range built {
		programs = append(programs, program)
	}
	return append(pages.Terminal(d.t, programs...),
		"KUBECONFIG="+d.stack.Kubeconfig(),
		"SICKBAY_TEMPORAL_ADDRESS="+d.stack.TemporalAddress(), "SICKBAY_TEMPORAL_NAMESPACE="+d.stack.TemporalNamespace(),
		"TEMPORAL_ADDRESS="+d.stack.TemporalAddress(), "TEMPORAL_NAMESPACE="+d.stack.TemporalNamespace())
}

// A clone without the commit is told apart from a build that fails.
func TestACommitThatTheCloneLacksIsToldWithHowToGetIt(t *testing.T) {
	_, err := product.BuildEarlier(t.Context(), strings.Repeat("0", 40))
	if !errors.Is(err, product.ErrNoHistory) || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("%v, want how to get the commit", err)
	}
}

package e2e

// This file lets incidents live on a real Temporal, told and asked as starters, cases and
// operators do. `make record` keeps their histories.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/stack"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// lives are incidents on a Temporal of their own, whose worker has short times.
type lives struct {
	*cluster
	client *incidentwf.Client

	mu    sync.Mutex
	kinds map[incident.Scope]map[incident.NoticeKind]int
}

func newLives(t *testing.T, policy incident.Policy) *lives {
	t.Helper()
	l := &lives{
		cluster: &cluster{t: t, stack: stack.Start(t, stack.Options{Temporal: true, SearchAttributes: product.SearchAttributes()})},
		kinds:   map[incident.Scope]map[incident.NoticeKind]int{},
	}
	l.dialTemporal()
	l.client = incidentwf.NewClient(l.temporal, taskQueue)
	sdk := worker.New(l.temporal, taskQueue, worker.Options{})
	sdk.RegisterWorkflowWithOptions(incidentwf.New(func() incidentwf.Knobs { return incidentwf.Knobs{Policy: policy, SearchAttributes: true} }).Run, workflow.RegisterOptions{Name: incidentwf.WorkflowType})
	sdk.RegisterActivityWithOptions(func(_ context.Context, task incidentwf.Announce) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.kinds[task.Scope] == nil {
			l.kinds[task.Scope] = map[incident.NoticeKind]int{}
		}
		for _, n := range task.Notices {
			if n.Seen == "" || n.Actor == "" || n.Text == "" {
				l.t.Errorf("on record without what was seen, by whom or what: %+v", n)
			}
			l.kinds[task.Scope][n.Kind]++
		}
		return nil
	}, activity.RegisterOptions{Name: incidentwf.ActivityAnnounce})
	if err := sdk.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sdk.Stop)
	return l
}

// told reports so many devices, of 100 of which 16 make an incident.
func (l *lives) told(scope incident.Scope, now, held int, by string) incident.Answer {
	l.t.Helper()
	answer, err := l.client.Report(l.t.Context(), scope, incident.Levels{
		Now: now, Held: held, Total: 100, Enough: 16, Nodes: 4, Oldest: time.Now(), By: by, Begins: now > 16,
		Sample: []string{"gpu.example.com/node-0/gpu-0"},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return answer
}

func (l *lives) says(scope incident.Scope, verb incident.Verb, lasts time.Duration) error {
	_, err := l.client.Send(l.t.Context(), scope, incident.Message{Verb: verb, Actor: "oncall@example.com", Reason: "we know of it", For: lasts})
	return err
}

// until tells the same levels until the answer is as wanted.
func (l *lives) until(scope incident.Scope, now, held int, what string, wanted func(incident.Answer) bool) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("incident %s %s", scope, what), 20*time.Second, func(context.Context) error {
		if a := l.told(scope, now, held, "starter-b"); !wanted(a) {
			return fmt.Errorf("it answers %+v", a)
		}
		return nil
	})
}

func (l *lives) count(scope incident.Scope, kind incident.NoticeKind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kinds[scope][kind]
}

func answers(phase incident.Phase) func(incident.Answer) bool {
	return func(a incident.Answer) bool { return a.Phase == phase }
}

func letsThrough(a incident.Answer) bool { return a.Through == 1 }

// U4. An incident's life on a real Temporal: it begins, another starter goes on with it,
// it has a maximum, asks, and lets devices and cases through; operators admit, hold longer
// and close; a new wave is asked about; one that is told for long continues as new and is
// still the same; low levels end it. Each decision is put on record once.
func TestIncidentsLiveOnARealTemporal(t *testing.T) {
	t.Parallel()
	l := newLives(t, incident.Policy{MaxNode: 2 * time.Second, Max: 2 * time.Second, Pace: 200 * time.Millisecond, CrowdPace: 100 * time.Millisecond, Calm: 500 * time.Millisecond})
	ask := func(scope incident.Scope, device string) bool {
		a, err := l.client.Ask(t.Context(), scope, incident.Asked{Device: device, Since: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return a.Granted()
	}

	driver := incident.OfDriver("gpu.example.com")
	l.told(driver, 40, 40, "starter-a")
	if ask(driver, "gpu.example.com/node-0/gpu-0") {
		t.Error("a case was let through while it holds")
	}
	l.until(driver, 40, 40, "asks and lets one through", letsThrough)
	l.eventually("a case is let through", 20*time.Second, func(context.Context) error {
		if !ask(driver, "gpu.example.com/node-0/gpu-0") {
			return errors.New("it waits")
		}
		return nil
	})
	if err := l.says(driver, incident.VerbClose, 0); err == nil {
		t.Error("it was closed although its devices are Unknown")
	}
	if err := l.says(driver, incident.VerbAdmit, 0); err != nil {
		t.Error(err)
	}
	l.until(driver, 20, 0, "lets all through", answers(incident.Admitted))
	l.until(driver, 60, 40, "asks about a new wave", answers(incident.Pacing))
	l.until(driver, 0, 0, "is over", answers(incident.Closed))

	node := incident.OfNode("node-7")
	l.told(node, 20, 20, "starter-a")
	if err := l.says(node, incident.VerbWait, time.Minute); err != nil {
		t.Error(err)
	}
	l.told(node, 1, 1, "starter-a")
	if err := l.says(node, incident.VerbClose, 0); err != nil {
		t.Error(err)
	}

	cluster := incident.Cluster()
	l.told(cluster, 40, 40, "starter-a")
	if err := l.temporal.SignalWorkflow(t.Context(), incidentwf.ID(cluster), "", string(incident.VerbAdmit), "let them through"); err != nil {
		t.Error(err)
	}
	if err := l.temporal.CancelWorkflow(t.Context(), incidentwf.ID(cluster), ""); err != nil {
		t.Error(err)
	}
	if err := l.says(cluster, incident.VerbWait, time.Hour); err != nil {
		t.Error(err)
	}
	began := time.Time{}
	l.eventually("it continues as new", time.Minute, func(ctx context.Context) error {
		for range 50 {
			began = l.told(cluster, 40, 40, "starter-b").Since
		}
		state, err := l.client.State(ctx, cluster)
		if err == nil && state.Runs == 0 {
			err = errors.New("it is in its first run")
		}
		return err
	})
	if a := l.told(cluster, 41, 41, "starter-b"); !a.Since.Equal(began) || a.Phase != incident.Holding {
		t.Errorf("after it continued as new it answers %+v, want one since %s", a, began)
	}
	l.until(cluster, 0, 0, "is over", answers(incident.Closed))

	crowd := incident.CrowdOfDriver("gpu.example.com", "580.1")
	l.told(crowd, 30, 14, "starter-a")
	l.until(crowd, 30, 14, "lets one through", letsThrough)
	if err := l.says(crowd, incident.VerbAdmit, 0); err != nil {
		t.Error(err)
	}
	l.until(crowd, 0, 0, "is over", answers(incident.Closed))

	for scope, kinds := range map[incident.Scope]map[incident.NoticeKind]int{
		driver:  {incident.NoticeBegan: 1, incident.NoticeTakenOver: 1, incident.NoticeAsks: 1, incident.NoticeGrew: 1, incident.NoticeMessage: 1, incident.NoticeClosed: 1},
		node:    {incident.NoticeBegan: 1, incident.NoticeMessage: 2},
		cluster: {incident.NoticeBegan: 1, incident.NoticeRefused: 2, incident.NoticeMessage: 1, incident.NoticeClosed: 1},
		crowd:   {incident.NoticeBegan: 1, incident.NoticeMessage: 1, incident.NoticeClosed: 1},
	} {
		for kind, want := range kinds {
			l.eventually(fmt.Sprintf("%s of %s is on record", kind, scope), 20*time.Second, func(context.Context) error {
				if n := l.count(scope, kind); n != want {
					return fmt.Errorf("%d times, want %d", n, want)
				}
				return nil
			})
		}
	}
}

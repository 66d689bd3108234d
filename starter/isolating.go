package starter

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Isolations is where the starter tells what a node's devices are like, if the policy
// isolates the node for it: the node workflows.
type Isolations interface {
	// Report tells a node's workflow, which begins with it, and returns its answer.
	Report(ctx context.Context, node string, levels isolation.Levels) (isolation.Answer, error)
	// Open lists the nodes that have a workflow.
	Open(ctx context.Context) ([]string, error)
}

// compareEvery is how often the levels of nodes are compared with what was told. tellPause
// is the least time between two tellings of a node, and tellAgain how often an open one is
// told although nothing changed.
const (
	compareEvery         = 2 * time.Second
	tellPause, tellAgain = 3 * time.Second, time.Minute
)

// isolating tells the node workflows what they are about, during one stretch of leadership.
type isolating struct {
	tracker *tracker
	nodes   Isolations
	policy  func() isolation.Policy
	// blind tells why marks or devices can't be seen now; what isn't seen isn't counted.
	blind    func() string
	settling *settling
	identity string
	clock    clock.WithTicker
	log      *slog.Logger
	// limit bounds a call.
	limit time.Duration

	told   map[string]toldNode
	failed bool
	tries  int
}

// toldNode is what a node's workflow was told last, and when.
type toldNode struct {
	levels isolation.Levels
	policy isolation.Policy
	at     time.Time
}

// run goes on until ctx ends.
func (i *isolating) run(ctx context.Context) {
	i.told = map[string]toldNode{}
	ticker := i.clock.NewTicker(compareEvery)
	defer ticker.Stop()
	for {
		// What a relist brings together says nothing before it is whole.
		if i.settling.wait(ctx) != nil {
			return
		}
		i.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// round tells what is due.
func (i *isolating) round(ctx context.Context) {
	if i.blind() != "" || !i.list(ctx) {
		return
	}
	policy := i.policy()
	for _, n := range i.tracker.nodeLevels(policy, i.told) {
		told, open := i.told[n.node]
		since := i.clock.Since(told.at)
		switch {
		case !open && !n.begins:
			continue
		case !open:
		case since < tellPause:
			continue
		case n.levels.Same(told.levels) && reflect.DeepEqual(policy, told.policy) && since < tellAgain:
			continue
		}
		if !i.tell(ctx, n, policy) {
			return
		}
	}
}

// list finds the workflows that are open, once, and tells whether the round may go on.
// Whoever may signal may not be allowed to list: after some tries it goes on without.
func (i *isolating) list(ctx context.Context) bool {
	if i.tries >= listTries {
		return true
	}
	call, cancel := context.WithTimeout(ctx, i.limit)
	defer cancel()
	open, err := i.nodes.Open(call)
	if err != nil {
		if i.tries++; i.tries == listTries && ctx.Err() == nil {
			i.log.Warn("the nodes that are isolated can't be listed; one of which nothing is left is given back late", "error", err)
			return true
		}
		return false
	}
	i.tries = listTries
	for _, node := range open {
		i.told[node] = toldNode{}
	}
	return true
}

// tell tells one node's workflow, and whether Temporal answers.
func (i *isolating) tell(ctx context.Context, n nodeLevels, policy isolation.Policy) bool {
	n.levels.By = i.identity
	call, cancel := context.WithTimeout(ctx, i.limit)
	defer cancel()
	answer, err := i.nodes.Report(call, n.node, n.levels)
	if err != nil {
		if !i.failed && ctx.Err() == nil {
			i.log.Warn("a node's workflow can't be told what its devices are like; it is tried again", "node", n.node, "error", err)
		}
		i.failed = true
		return false
	}
	i.failed = false
	if !answer.Open || !n.begins && answer.Phase == isolation.Considered {
		// It is over, or is about to be: nothing justifies it.
		delete(i.told, n.node)
		return true
	}
	i.told[n.node] = toldNode{n.levels, policy, i.clock.Now()}
	return true
}

// wholeNode is what a node shows of itself as a whole.
type wholeNode struct {
	// conditions are the types of its conditions that are True, but for Ready.
	conditions []string
	// mark is what Sickbay wrote on it, or nil.
	mark *kube.NodeMark
}

// nodeShows takes in what a node shows of itself as a whole.
func (t *tracker) nodeShows(name string, shown wholeNode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if shown.mark == nil && len(shown.conditions) == 0 {
		delete(t.wholes, name)
		return
	}
	t.wholes[name] = shown
}

// rulesServed takes in whether single devices can be marked.
func (t *tracker) rulesServed(served bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unmarkable = !served
}

// nodeLevels is what is counted on a node, and whether the node's workflow begins with it.
type nodeLevels struct {
	node   string
	levels isolation.Levels
	begins bool
}

// nodeLevels counts on every node that something is known of, or that has a workflow.
func (t *tracker) nodeLevels(p isolation.Policy, open map[string]toldNode) []nodeLevels {
	faulty := map[string][]isolation.Faulty{}
	if p.Way != isolation.Off || len(open) > 0 {
		t.eachRecord(func(key device.Key, r *record) {
			if f, is := t.faulty(key, r); is {
				faulty[r.node] = append(faulty[r.node], f)
			}
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	names := map[string]struct{}{}
	for name := range faulty {
		names[name] = struct{}{}
	}
	for name := range t.wholes {
		names[name] = struct{}{}
	}
	for name := range open {
		names[name] = struct{}{}
	}
	delete(names, "")
	var all []nodeLevels
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if n, known := t.levelsOf(name, faulty[name], p); known || contains(open, name) {
			all = append(all, n)
		}
	}
	return all
}

func contains[V any](m map[string]V, key string) bool { _, ok := m[key]; return ok }

// levelsOf counts on one node, and tells whether the node is known. The caller holds the
// lock.
func (t *tracker) levelsOf(name string, faulty []isolation.Faulty, p isolation.Policy) (nodeLevels, bool) {
	_, known := t.nodes[name]
	slices.SortFunc(faulty, func(a, b isolation.Faulty) int { return cmp.Compare(a.Device, b.Device) })
	total, classes := t.devicesOn(name)
	l := isolation.Levels{
		Total: total, Classes: classes, Faulty: faulty, FaultyCount: len(faulty),
		Beat: t.heartbeat(name, t.timing.HeartbeatLimit), Marked: t.wholes[name].mark != nil,
	}
	var conditions []isolation.Condition
	for _, c := range t.wholes[name].conditions {
		if slices.Contains(p.Conditions, c) {
			l.Conditions, conditions = append(l.Conditions, c), append(conditions, isolation.Condition{Type: c})
		}
	}
	_, justified := isolation.Justify(total, faulty, conditions, p)
	out := l.Beat == device.HeartbeatStopped || t.nodesOut[name] > 0 || t.ready[name] != device.ReadyTrue
	const maxListed = 64
	l.Faulty = l.Faulty[:min(len(l.Faulty), maxListed)]
	return nodeLevels{node: name, levels: l, begins: known && (l.Marked || justified && !out)}, known
}

// devicesOn counts a node's devices, in all and of each class, as its pools and plugins
// list them or did when they were last complete. Where that isn't known of one of them
// there is no count at all: few of few would seem many. The caller holds the lock.
func (t *tracker) devicesOn(node string) (total int, classes []budget.Size) {
	of := map[string]int{}
	for key, p := range t.pools {
		if p.node != node {
			continue
		}
		pool := p.believed()
		if !pool.Complete && len(p.expected.Devices) == 0 && len(p.slices) > 0 {
			return 0, nil
		}
		of[key.Driver] += len(pool.Devices)
	}
	for resource, offer := range t.nodes[node].offers {
		of[resource] += int(offer.Listed)
	}
	for _, class := range slices.Sorted(maps.Keys(of)) {
		if of[class] > 0 {
			total += of[class]
			classes = append(classes, budget.Size{Scope: budget.Scope{Kind: budget.Class, Name: class}, Eligible: of[class]})
		}
	}
	return total, classes
}

// faulty tells whether a device carries the mark of a fault, or is reported as faulty by a
// live Pod on a node that isn't out: its case confirms that before anything is done.
func (t *tracker) faulty(key device.Key, r *record) (isolation.Faulty, bool) {
	if r.mark != nil {
		f := isolation.Faulty{Device: key.String(), Epoch: r.mark.found.Epoch, Reason: string(r.mark.found.Reason), Marked: true}
		return f, !r.mark.found.Restricted && r.mark.found.Epoch > 0
	}
	if t.isOut(r) {
		return isolation.Faulty{}, false
	}
	for _, s := range r.readings {
		if !s.now.Ended && s.now.Counts() == device.Unhealthy && t.bad(r, s.now) {
			return isolation.Faulty{
				Device: key.String(), Reason: string(s.now.Reason.Code), Unmarkable: key.Path() == device.PathPlugin || t.unmarkable,
			}, true
		}
	}
	return isolation.Faulty{}, false
}

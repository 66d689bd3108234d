package starter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// The directory shows what is seen of every device, healthy ones too: each as a
// level, worked out when its turn comes. The starter that leads writes it, in a
// goroutine of its own, and the way of a reading to its case knows nothing of it.

// setUpDirectory makes the writer of what is seen, where there is a directory.
func (s *Starter) setUpDirectory() error {
	if s.options.Directory == nil {
		return nil
	}
	metrics, err := directory.NewMetrics(s.options.Registerer, directory.FieldSeen, func() *directory.Writer { return s.shown })
	if err != nil {
		return fmt.Errorf("register the directory's metrics: %w", err)
	}
	s.shown = directory.NewWriter(directory.WriterOptions{
		Directory: s.options.Directory, Field: directory.FieldSeen, Truth: &levels{tracker: s.tracker},
		Log: s.log, Metrics: metrics, Blind: s.blind,
	})
	return nil
}

// showLevels keeps the directory as the tracker's levels are, until ctx ends.
func (s *Starter) showLevels(ctx context.Context) {
	s.tracker.showTo(s.shown.Changed)
	defer s.tracker.showTo(nil)
	s.shown.Run(ctx)
}

// blind says what can't be seen now, in one line.
func (s *Starter) blind() string {
	if err := s.eyes.err(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return ""
}

// showTo makes the tracker tell of devices of which something changed.
func (t *tracker) showTo(show func(...device.Key)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.show = show
	clear(t.shifted)
}

// shift takes in that what is seen of a device may have changed.
func (t *tracker) shift(key device.Key) {
	if t.show != nil {
		t.shifted[key] = struct{}{}
	}
}

// shiftPool does so for the devices of a pool that differ between two of its states.
func (t *tracker) shiftPool(before, now device.Pool) {
	if t.show == nil {
		return
	}
	whole := before.Complete != now.Complete || before.Node != now.Node
	known := map[device.Key]device.Incarnation{}
	for _, d := range before.Devices {
		known[d.Key] = d.Incarnation
	}
	for _, d := range now.Devices {
		hardware, was := known[d.Key]
		if whole || !was || hardware != d.Incarnation {
			t.shift(d.Key)
		}
		delete(known, d.Key)
	}
	for key := range known {
		t.shift(key)
	}
}

// shiftNode does so for the devices on a node.
func (t *tracker) shiftNode(name string) {
	if t.show == nil {
		return
	}
	for key := range t.devicesByNode[name] {
		t.shift(key)
	}
}

func (t *tracker) takeShifted() []device.Key {
	if len(t.shifted) == 0 {
		return nil
	}
	keys := slices.Collect(maps.Keys(t.shifted))
	t.shifted = emptied(t.shifted)
	return keys
}

// seen is what is seen of a device now, or nil for one that nothing names.
func (t *tracker) seen(key device.Key) *directory.Seen {
	s := &directory.Seen{Device: key, Node: key.Node, Objective: directory.ObjectiveNotConfigured}
	r, p := t.devices[key], t.poolOf(key)
	expected := false
	if p != nil {
		var found device.PoolDevice
		found, s.Listed = p.now.Find(key.Device)
		if !s.Listed {
			found, expected = p.believed().Find(key.Device)
			expected = expected || wasListed(p, key)
		}
		s.Node, s.Hardware = p.node, found.Incarnation
	}
	t.holders(s)
	if r == nil && !s.Listed && !expected && len(s.Holders) == 0 {
		return nil
	}
	if r != nil {
		if s.Node == "" {
			s.Node = r.node
		}
		reports := make([]device.Report, 0, len(r.readings))
		for _, said := range r.readings {
			report := said.now.Report
			report.Stale = device.Fresh // why it isn't believed stands beside what is said
			reports = append(reports, report)
			if key.Path() == device.PathPlugin && said.own && !said.now.Monitor && !said.now.Ended {
				s.Hold(directory.Holder{Pod: said.now.Pod, Containers: t.containers(said.now.Pod)})
			}
		}
		s.Observe(reports)
	}
	if key.Path() == device.PathPlugin {
		s.Classes, s.Listed = []string{key.Resource}, t.nodes[key.Node].offers[key.Resource].Listed > 0
	}
	if s.Health != "" {
		// What Sickbay itself can't see is said of all devices at once, by the beat.
		s.Stale = t.around(key, s.Node).Freshness(key.Path())
		s.StaleSince = t.staleSince(key, s.Node, s.Stale).UTC()
		_, known := t.known[pair{reading.DriverOf(key), s.Node}]
		s.Unmonitored = s.Health == device.Unknown && s.Stale == device.Fresh && !known
	}
	return s
}

// holders finds who has a DRA device allocated, and through which class.
func (t *tracker) holders(s *directory.Seen) {
	if s.Device.Path() != device.PathDRA {
		return
	}
	s.Classes = t.classesOf(s.Device)
	for _, name := range slices.Sorted(maps.Keys(t.claimsByPool[poolKey(s.Device)])) {
		claim := t.claims[name]
		for _, result := range claim.Results {
			if result.Device != s.Device || !result.Holds() {
				continue
			}
			for _, pod := range claim.ReservedFor {
				s.Hold(directory.Holder{Pod: pod, Claim: claim.Name, Containers: t.containers(pod)})
			}
		}
	}
}

// containers says whether a Pod's containers are ready.
func (t *tracker) containers(pod device.PodRef) directory.Readiness {
	switch p := t.pods[pod.UID]; {
	case p == nil:
		return ""
	case p.view.ContainersReady:
		return directory.ContainersReady
	}
	return directory.ContainersNotReady
}

// shiftPod takes in that a Pod came or that its containers' readiness changed: it
// is shown at what it holds.
func (t *tracker) shiftPod(p *pod) {
	for key := range p.devices {
		t.shift(key)
	}
	for _, name := range claimsOf(p.view) {
		for _, result := range t.claims[name].Results {
			t.shift(result.Device)
		}
	}
}

// levels is the tracker as the directory's truth.
type levels struct {
	tracker *tracker
	// listed holds the devices by shard, as they were when a shard was last asked
	// for a second time. It only has to name those that the directory lacks; what
	// came later is told by Changed.
	listed map[int][]device.Key
}

// errNotListed is why nothing can be said before everything was listed once.
var errNotListed = errors.New("not everything has been listed yet")

// Devices implements directory.Truth.
func (l *levels) Devices(_ context.Context, shard int) iter.Seq2[device.Key, error] {
	return func(yield func(device.Key, error) bool) {
		if _, there := l.listed[shard]; !there {
			if l.listed = l.tracker.shardDevices(); l.listed == nil {
				yield(device.Key{}, errNotListed)
				return
			}
		}
		keys := l.listed[shard]
		delete(l.listed, shard)
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// Level implements directory.Truth.
func (l *levels) Level(_ context.Context, key device.Key) (directory.Level, error) {
	t := l.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.complete {
		return directory.Level{}, errNotListed
	}
	return directory.Level{Seen: t.seen(key)}, nil
}

// shardDevices lists every device that anything names, by shard, or returns nil
// before everything was listed once.
func (t *tracker) shardDevices() map[int][]device.Key {
	t.mu.Lock()
	if !t.complete {
		t.mu.Unlock()
		return nil
	}
	all := map[device.Key]struct{}{}
	for key := range t.devices {
		all[key] = struct{}{}
	}
	for _, p := range t.pools {
		for _, d := range p.now.Devices {
			all[d.Key] = struct{}{}
		}
		for _, d := range p.expected.Devices {
			all[d.Key] = struct{}{}
		}
	}
	for _, claim := range t.claims {
		for _, result := range claim.Results {
			all[result.Device] = struct{}{}
		}
	}
	t.mu.Unlock()
	shards := make(map[int][]device.Key, directory.Shards)
	for shard := range directory.Shards {
		shards[shard] = nil
	}
	for key := range all {
		shard := directory.ShardOf(key)
		shards[shard] = append(shards[shard], key)
	}
	return shards
}

// Listed is everything that a starter watches, as one reading of the cluster gives it.
type Listed struct {
	Slices []device.Slice
	Claims []device.Claim
	Pods   []device.Pod
	Nodes  []*corev1.Node
}

// Levels says what a starter that sees this for the first time shows in the
// directory: by the very same code, so that a rebuilt directory is the one that the
// starter would write.
func Levels(all Listed, catalogue *reason.Catalogue) []directory.Entry {
	o := Options{Catalogue: catalogue, Log: slog.New(slog.DiscardHandler)}.withDefaults()
	t := newTracker(o, newSettling(o.Clock, o.Timing), newMetrics())
	for i, slice := range all.Slices {
		t.sliceSeen(strconv.Itoa(i), slice)
	}
	for _, claim := range all.Claims {
		t.claimSeen(claim)
	}
	for _, node := range all.Nodes {
		t.nodeSeen(node.Name, string(node.UID), kube.OffersOf(node))
		t.nodeReady(node.Name, readiness(node))
	}
	for _, pod := range all.Pods {
		t.podSeen(pod)
	}
	t.listed()
	var entries []directory.Entry
	for _, keys := range t.shardDevices() {
		for _, key := range keys {
			if seen := t.seen(key); seen != nil {
				entries = append(entries, directory.Entry{Device: key, Seen: seen})
			}
		}
	}
	return entries
}

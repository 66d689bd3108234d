package listing

// This file answers from the device directory instead of the cluster: a fleet of
// many thousand devices without a list of all its Pods.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/spelling"
)

// beatLimit is how long ago those who write the directory may have said that they
// are alive for what they wrote to count as the present. They say so every 5 s.
const beatLimit = 15 * time.Second

// ReadDirectory gives all devices as the directory has them. It is as complete and
// as young as Problems says, and knows no unmapped faults: an entry is a device's.
func ReadDirectory(ctx context.Context, from *directory.Directory, delays Delays, now time.Time) (Listing, error) {
	listing := Listing{At: now, Devices: []Device{}, Problems: []string{}}
	for entry, err := range from.List(ctx, directory.Query{}) {
		if errors.Is(err, directory.ErrFormat) || errors.Is(err, directory.ErrNoEntry) {
			listing.Problems = append(listing.Problems, err.Error()+"; `sickbay rebuild` writes it anew")
			continue
		}
		if err != nil {
			return Listing{}, err
		}
		listing.Devices = append(listing.Devices, ofEntry(entry))
	}
	// Asked last: what was lost while the entries were read shows in it.
	shards, err := from.Status(ctx)
	if err != nil {
		return Listing{}, err
	}
	listing.Problems = append(listing.Problems, lacks(shards, now)...)
	listing.spreadOutages()
	beat := oldestBeat(shards, now)
	for i := range listing.Devices {
		listing.Devices[i].aged(delays, beat)
	}
	slices.SortFunc(listing.Devices, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return listing, nil
}

// spreadOutages says of each device that its node is out if that is known from another
// one: of a device that nobody reports on, an entry says nothing.
func (l *Listing) spreadOutages() {
	out := map[string]device.Staleness{}
	for _, d := range l.Devices {
		if d.NodeOut != device.Fresh {
			out[d.Node] = d.NodeOut
		}
	}
	for i, d := range l.Devices {
		l.Devices[i].NodeOut = out[d.Node]
		l.Devices[i].Unmonitored = d.Unmonitored && out[d.Node] == device.Fresh
	}
}

// watched is how long before a beat the starter may last have seen a node's Lease
// move that it holds to be alive: its heartbeat limit (50 s unless a site sets another)
// and the pause between two of its looks (15 s).
const watched = 65 * time.Second

// aged says how old what an entry reports may be. The starter vouches for what it
// doesn't doubt, each time that it says that it is alive.
func (d *Device) aged(delays Delays, beat time.Time) {
	if d.Health == "" {
		return
	}
	if d.Age == nil {
		d.Age = &Age{}
	}
	d.Age.Lag = delays.lag(d.Key)
	if d.Stale == device.Fresh && d.NodeOut == device.Fresh && !beat.IsZero() {
		d.Age.Confirmed = moment(beat.Add(-watched))
	}
}

// oldestBeat is when the starter last said of all shards that it is alive.
func oldestBeat(shards []directory.Status, now time.Time) time.Time {
	beat := now
	for _, s := range shards {
		if s.Beat.Before(beat) {
			beat = s.Beat
		}
	}
	return beat
}

// lacks says for what reasons the directory may not be how things are.
func lacks(shards []directory.Status, now time.Time) []string {
	var partial int
	caseBeat := now
	for _, s := range shards {
		if s.CaseBeat.Before(caseBeat) {
			caseBeat = s.CaseBeat
		}
		if !s.WholeSeen || !s.WholeCase {
			partial++
		}
	}
	var problems []string
	if partial > 0 {
		problems = append(problems, fmt.Sprintf("%d of the directory's %d shards aren't filled yet: devices or cases may be missing", partial, len(shards)))
	}
	problems = append(problems, Sight(shards, now)...)
	switch age := now.Sub(caseBeat); {
	case caseBeat.IsZero():
		problems = append(problems, "no worker has written the directory yet: it has no cases")
	case age > beatLimit:
		problems = append(problems, fmt.Sprintf("no worker has written the directory for %s: cases may be older than that, or missing", age.Round(time.Second)))
	}
	return problems
}

// Unknown says of a name that isn't in the listing what may be meant.
func (l Listing) Unknown(name string) error {
	var names []string
	for _, d := range l.Devices {
		names = append(names, d.Name)
	}
	text := fmt.Sprintf("no device in the directory is called %s", name)
	if near := spelling.Near(name, names, mostNamed); len(near) > 0 {
		return &notFound{text + "; did you mean " + alternatives(near, mostNamed) + "?"}
	}
	return &notFound{text + "; `sickbay devices` without --from directory asks the cluster"}
}

// ofEntry is a device as its entry has it.
func ofEntry(e directory.Entry) Device {
	d := Device{Name: e.Device.String(), Path: e.Device.Path(), Key: e.Device, Node: e.Device.Node}
	if seen := e.Seen; seen != nil {
		d.Node, d.Listed, d.Classes = seen.Node, seen.Listed || seen.Health != "", seen.Classes
		d.Health, d.Message = seen.Health, seen.Message
		if seen.Health == device.Healthy && seen.Stale != device.Fresh {
			d.Health, d.Stale = device.Unknown, seen.Stale
		}
		if nodesFault(seen.Stale) {
			d.NodeOut = seen.Stale
		}
		if seen.Stale != device.Fresh && !seen.StaleSince.IsZero() {
			d.Age = &Age{Ceased: moment(seen.StaleSince)}
		}
		d.Unmonitored = seen.Unmonitored
		for _, h := range seen.Holders {
			d.Holders = append(d.Holders, Holder{Namespace: h.Pod.Namespace, Name: h.Pod.Name, UID: h.Pod.UID, Claim: h.Claim})
		}
	}
	c := e.Case
	if c == nil {
		return d
	}
	d.Node = cmp.Or(d.Node, c.Node)
	d.Phase, d.Waiting, d.Reason, d.Epoch, d.Attempt, d.Workflow = c.Phase, c.Waiting, string(c.Reason), c.Epoch, c.Attempt, c.Workflow
	d.Source = SourceCase
	if c.Source == directory.SourceMark {
		d.Source = SourceMark
	}
	if c.Severity != 0 {
		d.Severity = c.Severity.String()
	}
	d.Since = notGoodSince(c.FirstNotGood, c.Since)
	d.Message = cmp.Or(d.Message, c.Message)
	if c.Mark.State != "" {
		d.Mark = &Mark{State: string(c.Mark.State), Name: c.Mark.Name, Epoch: c.Epoch, Detail: c.Mark.Detail}
	}
	return d
}

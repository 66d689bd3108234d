package quarantine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// wire is one event as it may come over the wire, with the time that passed before.
type wire struct {
	After        time.Duration
	Observed     *quarantine.Observed
	Inventory    *quarantine.Inventory
	MarkSeen     *quarantine.MarkSeen
	Looked       *quarantine.Looked
	MarkReported *quarantine.MarkReported
	Message      *quarantine.Message
	Announced    *quarantine.Announced
	// Own makes a MarkReported answer the present epoch.
	Own bool
}

func (w wire) event(c quarantine.Case) quarantine.Event {
	switch {
	case w.Observed != nil:
		return *w.Observed
	case w.Inventory != nil:
		return *w.Inventory
	case w.MarkSeen != nil:
		return *w.MarkSeen
	case w.Looked != nil:
		return *w.Looked
	case w.MarkReported != nil:
		if w.Own {
			w.MarkReported.Epoch, w.MarkReported.Revision = c.Epoch, c.Mark.Revision
		}
		return *w.MarkReported
	case w.Message != nil:
		return *w.Message
	case w.Announced != nil:
		return *w.Announced
	}
	return quarantine.Woke{}
}

// FuzzDecide feeds whatever can be decoded to a case: it must not panic, and the
// case must survive being written and read.
func FuzzDecide(f *testing.F) {
	bad := MakeReading("train-0").Unhealthy(fatalFault).Obj()
	unknown := MakeReading("train-0").Unknown().Obj()
	found := oldMark()
	for _, events := range [][]wire{
		{{Observed: &quarantine.Observed{Readings: []quarantine.Reading{bad}}}, {MarkReported: &quarantine.MarkReported{Outcome: quarantine.OutcomeInForce}, Own: true}, {After: time.Hour}},
		{{Observed: &quarantine.Observed{Lost: true, Readings: []quarantine.Reading{unknown}}}, {After: time.Minute, Looked: &quarantine.Looked{Readings: []quarantine.Reading{unknown}}}},
		{{Inventory: &quarantine.Inventory{Missing: device.MissingFromPool}}, {After: time.Minute, Looked: &quarantine.Looked{Presence: &quarantine.Inventory{Missing: device.MissingFromPool}}}, {After: 80 * time.Hour}},
		{{MarkSeen: &quarantine.MarkSeen{Present: true, Mark: found}}, {Looked: &quarantine.Looked{Mark: &found}}, {MarkSeen: &quarantine.MarkSeen{}}},
		{{Observed: &quarantine.Observed{Readings: []quarantine.Reading{bad}}}, {Message: &quarantine.Message{Verb: quarantine.VerbRetire, Actor: "a", Reason: "b"}}, {Announced: &quarantine.Announced{UpTo: 9}}},
	} {
		text, err := json.Marshal(events)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text []byte, enforced bool) {
		var events []wire
		if json.Unmarshal(text, &events) != nil {
			return
		}
		p := quarantine.DefaultPolicy()
		if enforced {
			p.Mode = quarantine.ModeEnforce
		}
		c, now := quarantine.Case{Device: gpu}, start
		for _, w := range events[:min(len(events), 50)] {
			if w.After > 0 && w.After < 1000*time.Hour {
				now = now.Add(w.After)
			}
			c, _ = quarantine.Decide(c, w.event(c), now, p)
			c.NextWake(now)
			written, err := json.Marshal(c)
			if err != nil {
				// Years past 9999, which no clock of ours gives.
				return
			}
			c = quarantine.Case{}
			if err := json.Unmarshal(written, &c); err != nil {
				t.Fatalf("read %s: %v", written, err)
			}
		}
	})
}

package quarantine_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// paths are the ways in which a device may be reached and kept out.
var paths = map[string]struct {
	key    device.Key
	served bool
}{
	"a DRA device": {gpu, true},
	"a DRA device on a cluster without the API": {gpu, false},
	"a device-plugin device":                    {plugged, false},
}

// fate draws what a Pod's status says: Healthy, Unknown, or a fault.
func fate(t *rapid.T, messages ...string) (device.Health, string) {
	health := rapid.SampledFrom([]device.Health{device.Healthy, device.Unknown, device.Unhealthy}).Draw(t, "health")
	if health != device.Unhealthy || len(messages) == 0 {
		if health == device.Unhealthy {
			return device.Unknown, ""
		}
		return health, ""
	}
	return health, rapid.SampledFrom(messages).Draw(t, "message")
}

// drive is everything that may happen to a case and its device, in any order.
type drive struct {
	*run
	// faults are the messages that drivers give; none at all for a world in which
	// nothing is ever known to be wrong.
	faults []string
	calm   bool
}

func newDrive(t *rapid.T, key device.Key, served bool) *drive {
	p := enforce()
	if rapid.Bool().Draw(t, "observe") {
		p.Mode = quarantine.ModeObserve
	}
	p.Forget = 6 * time.Hour
	p.Recover = rapid.IntRange(0, 3).Draw(t, "recover") > 0
	p.Attempts, p.AttemptPause, p.AttemptPauseMax, p.CanaryWithin = 3, 10*time.Minute, time.Hour, 20*time.Minute
	return &drive{
		run:    &run{t: t, w: newWorld(key, served), c: quarantine.Case{Device: key}, p: p, now: start},
		faults: []string{fatalFault, majorFault, suspectFault, appError, "", "something else"},
	}
}

func (d *drive) tellOf(i int, known bool) {
	d.watch = append(d.watch, quarantine.Observed{
		Node: "anvil-07", Lost: known, Incarnation: d.w.hardware,
		Readings: []quarantine.Reading{d.w.reading(d.w.pods[i])},
	})
}

func (d *drive) actions() map[string]func(*rapid.T) {
	w := d.w
	somePod := func(t *rapid.T) (int, bool) {
		if len(w.pods) == 0 {
			return 0, false
		}
		return rapid.IntRange(0, len(w.pods)-1).Draw(t, "pod"), true
	}
	actions := map[string]func(*rapid.T){
		"a mark is made ahead of its case": func(t *rapid.T) {
			i, ok := somePod(t)
			if !ok || w.mark != nil || w.key.Path() == device.PathPlugin || d.c.Open() && rapid.IntRange(0, 9).Draw(t, "open") > 0 {
				return
			}
			event := quarantine.Observed{Node: "anvil-07", Lost: true, Incarnation: w.hardware, Readings: []quarantine.Reading{w.reading(w.pods[i])}}
			_, owed := quarantine.Decide(quarantine.Case{Device: w.key}, event, d.now, d.p)
			for _, command := range owed {
				if put, ok := command.(quarantine.PutMark); ok {
					if report := w.put(put); report.Outcome == quarantine.OutcomeInForce {
						event.Made = quarantine.Made{Epoch: put.Epoch, Name: report.Name, Version: report.Version, At: d.now}
					}
				}
			}
			d.watch = append(d.watch, event)
		},
		"a Pod starts": func(t *rapid.T) {
			if len(w.pods) < 4 {
				health, message := fate(t, d.faults...)
				if w.left {
					health, message = device.Healthy, ""
				}
				i := w.start(fmt.Sprintf("train-%d", len(w.pods)), rapid.IntRange(0, 3).Draw(t, "monitor") == 0, health, message, d.now)
				d.tellOf(i, rapid.Bool().Draw(t, "known"))
			}
		},
		"health changes": func(t *rapid.T) {
			if i, ok := somePod(t); ok && w.pods[i].running {
				health, message := fate(t, d.faults...)
				if w.left {
					return // nobody says anything new of it
				}
				w.write(i, health, message, d.now)
				d.tellOf(i, true)
			}
		},
		"a Pod ends": func(t *rapid.T) {
			if i, ok := somePod(t); ok && w.pods[i].running {
				w.pods[i].running = false
				w.version++
				w.pods[i].version = w.version
				if rapid.Bool().Draw(t, "seen") {
					d.tellOf(i, true)
				}
			}
		},
		"an old reading comes again": func(t *rapid.T) {
			if len(d.told) > 0 {
				r := rapid.SampledFrom(d.told).Draw(t, "reading")
				d.tell(quarantine.Observed{Node: "anvil-07", Lost: true, Readings: []quarantine.Reading{r}, Incarnation: oldCard})
			}
		},
		"the watch delivers":           func(*rapid.T) { d.delivers() },
		"the mark's write runs":        func(*rapid.T) { d.markRuns() },
		"the mark's answer":            func(*rapid.T) { d.markAnswers() },
		"the question's answer":        func(*rapid.T) { d.askAnswers() },
		"the budget is used up or not": func(t *rapid.T) { w.full = rapid.Bool().Draw(t, "full") },
		"a permit is offered":          func(*rapid.T) { d.tell(quarantine.PermitOffered{Epoch: d.c.Epoch}) },
		"an incident begins or ends":   func(t *rapid.T) { w.incident = rapid.Bool().Draw(t, "incident") },
		"the driver shows itself or not": func(t *rapid.T) {
			w.driver = rapid.SampledFrom([]quarantine.DriverSign{quarantine.DriverSilent, quarantine.DriverSpeaks, quarantine.DriverUnknown}).Draw(t, "driver")
			w.published += rapid.IntRange(0, 1).Draw(t, "published")
		},
		"the look reads":         func(*rapid.T) { d.lookReads() },
		"the look's answer":      func(*rapid.T) { d.lookAnswers() },
		"the look fails":         func(*rapid.T) { d.lookFails() },
		"everything settles":     func(*rapid.T) { d.settle() },
		"the node stops or goes": func(t *rapid.T) { w.node.ready = rapid.Bool().Draw(t, "ready") },
		"the Lease stops or goes": func(*rapid.T) {
			if w.node.dead.IsZero() {
				w.node.dead = d.now.Truncate(10 * time.Second)
			} else {
				w.node.dead = time.Time{}
			}
		},
		"a moment passes": func(t *rapid.T) {
			d.passesSynced(time.Duration(rapid.IntRange(1, 30_000).Draw(t, "ms")) * time.Millisecond)
		},
		"time passes": func(t *rapid.T) {
			d.passesSynced(time.Duration(rapid.IntRange(1, 180).Draw(t, "minutes")) * time.Minute)
		},
		"the device goes missing": func(t *rapid.T) {
			reasons := []device.MissingReason{device.PoolGone, device.NodeDeleted}
			switch {
			case d.calm:
			case w.key.Path() == device.PathPlugin:
				reasons = []device.MissingReason{device.AllocatableDropped, device.NodeDeleted}
			default:
				reasons = append(reasons, device.MissingFromPool)
			}
			w.listed, w.why = false, rapid.SampledFrom(reasons).Draw(t, "why")
			d.watch = append(d.watch, w.inventory())
		},
		"the device is listed": func(t *rapid.T) {
			w.listed = true
			if !d.calm {
				w.hardware = rapid.SampledFrom([]device.Incarnation{oldCard, newCard, {}}).Draw(t, "hardware")
				w.movedTo = rapid.SampledFrom([]string{"", "", "gpu.example.com/anvil-07/gpu-7"}).Draw(t, "moved")
			}
			d.watch = append(d.watch, w.inventory())
		},
		"the pool is incomplete or not": func(t *rapid.T) { w.complete = rapid.Bool().Draw(t, "complete") },
		"an operator writes": func(t *rapid.T) {
			d.tell(quarantine.Message{
				Verb:   rapid.SampledFrom(append(quarantine.Verbs[:], "", "destroy")).Draw(t, "verb"),
				Actor:  rapid.SampledFrom([]string{"oncall@example.com", ""}).Draw(t, "actor"),
				Reason: rapid.SampledFrom([]string{"replaced the riser", ""}).Draw(t, "reason"),
				For:    time.Duration(rapid.IntRange(-1, 240).Draw(t, "for")) * time.Minute,
			})
		},
		"an unreadable message": func(*rapid.T) {
			d.tell(quarantine.Message{Verb: quarantine.VerbRelease, Malformed: "the payload can't be read"})
		},
		"the mode changes": func(t *rapid.T) {
			d.p.Mode = rapid.SampledFrom([]quarantine.Mode{quarantine.ModeObserve, quarantine.ModeEnforce}).Draw(t, "mode")
			d.tell(quarantine.Woke{})
		},
		"rights come or go": func(t *rapid.T) { w.forbidden = rapid.Bool().Draw(t, "forbidden") },
	}
	if w.key.Path() == device.PathPlugin {
		d.pluginActions(actions)
	} else {
		d.recoveryActions(actions)
	}
	if !d.calm {
		actions["the mark is deleted by hand"] = func(*rapid.T) {
			if w.mark != nil {
				epoch := w.mark.Epoch
				w.mark = nil
				d.watch = append(d.watch, w.seen(epoch))
			}
		}
		actions["the mark is changed by hand"] = func(*rapid.T) {
			if w.mark != nil {
				w.intact = false
				d.watch = append(d.watch, w.seen(0))
			}
		}
		actions["the mark of another case is there"] = func(t *rapid.T) {
			if w.served && w.mark == nil {
				// As old as a lost case's, or later than this one's.
				epoch := d.now.UnixMilli() + int64(rapid.IntRange(-3_600_000, 3_600_000).Draw(t, "epoch"))
				w.mark, w.intact = earlierMark(epoch), rapid.Bool().Draw(t, "intact")
				d.watch = append(d.watch, w.seen(0))
			}
		}
		actions["somebody else has the mark's name"] = func(t *rapid.T) { w.foreign = w.mark == nil && rapid.Bool().Draw(t, "foreign") }
	}
	return actions
}

// pluginActions are what happens to a plugin and its list. The kubelet says Healthy
// of a device that is left out.
func (d *drive) pluginActions(actions map[string]func(*rapid.T)) {
	w := d.w
	retell := func() {
		for i, p := range w.pods {
			if p.running {
				d.tellOf(i, true)
			}
		}
	}
	actions["the plugin leaves the device out"] = func(*rapid.T) {
		if !w.left {
			w.left, w.leftAt = true, d.now
			d.watch = append(d.watch, w.inventory())
		}
	}
	actions["the kubelet syncs its Pods"] = func(*rapid.T) { d.sync() }
	actions["the plugin lists it again"] = func(*rapid.T) {
		w.left = false
		d.watch = append(d.watch, w.inventory())
	}
	actions["other devices come or go"] = func(t *rapid.T) {
		w.others = int64(rapid.IntRange(1, 5).Draw(t, "others"))
		w.moves++
		d.watch = append(d.watch, w.inventory())
	}
	actions["the plugin dies or comes back"] = func(t *rapid.T) {
		w.away = rapid.Bool().Draw(t, "away")
		retell()
	}
}

// sync lets Pods say Healthy of a device that its plugin left out.
func (d *drive) sync() {
	for i, p := range d.w.pods {
		if d.w.left && p.running && p.health != device.Healthy {
			d.w.write(i, device.Healthy, "", d.now)
			d.tellOf(i, true)
		}
	}
}

// passesSynced is passes, where the kubelet syncs its Pods in time.
func (d *drive) passesSynced(by time.Duration) {
	const late = 90 * time.Second
	if due := d.w.leftAt.Add(late).Sub(d.now); d.w.left && due < by {
		if due > 0 {
			d.passes(due)
			by -= due
		}
		d.sync()
	}
	d.passes(by)
}

// O8, Q5, Q6, R7: whatever happens, in any order, at each step: severity and epoch
// only rise, the first not-good moment stays, no case ends while its mark is in
// force, nor by the health of a device that its plugin has left out since it called
// it Unhealthy, mode observe writes nothing, nothing is stuck in silence; Decide leaves
// its argument alone, takes an event that comes twice for one, and decides the
// same after a case was written and read.
func TestNothingThatHappensBreaksAnInvariant(t *testing.T) {
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				t.Repeat(newDrive(t, path.key, path.served).actions())
			})
		})
	}
}

// U2: in a world in which no fault is ever reported, a device is restricted at most,
// past its window and for as long as nothing better is known, and never quarantined,
// whatever becomes Unknown, fails, goes away or comes back, and for however long.
func TestUnknownAloneNeverDoesMoreThanRestrict(t *testing.T) {
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				d := newDrive(t, path.key, path.served)
				d.faults, d.calm = []string{appError}, true
				actions := d.actions()
				retired := false
				actions[""] = func(t *rapid.T) {
					// An operator's word may do more than Unknown does alone.
					if retired = retired || d.c.Phase == quarantine.PhaseRetired || d.c.Reason.Code == reason.ByHand; retired {
						return
					}
					for _, command := range d.owed {
						put, ok := command.(quarantine.PutMark)
						if ok && !put.Restricted && !(d.c.Phase == quarantine.PhaseGone && d.c.Former == quarantine.PhaseRestricted) {
							t.Fatalf("a mark that says more than Restricted is owed: %s", encode(t, d.c))
						}
					}
					switch d.c.Phase {
					case quarantine.PhaseNone, quarantine.PhaseSuspect, quarantine.PhaseRestricted, quarantine.PhaseGone, quarantine.PhaseClosed:
					default:
						t.Fatalf("the device is %s: %s", d.c.Phase, encode(t, d.c))
					}
				}
				t.Repeat(actions)
			})
		})
	}
}

// sameCase leaves away what may differ when the same evidence came in another
// order: how it was told and when it is looked next.
func sameCase(c quarantine.Case) quarantine.Case {
	c = withoutBookkeeping(c)
	c.Mark.Revision, c.LookedAt = 0, time.Time{}
	c.Reports = slices.Clone(c.Reports)
	for i := range c.Reports {
		// Of two writes that say the same, the one that came first is kept.
		c.Reports[i].Version = ""
	}
	return c
}

// O3: the readings of a moment, shuffled and repeated, give the same case, once a
// live look has said what is true now. Newer readings of a Pod are as bad as the
// older ones or worse: what a newer, better one had overtaken before anybody saw
// it opens no case.
func TestTheOrderOfReadingsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(gpu, true)
		var sent []quarantine.Reading
		grave := []string{"", suspectFault, majorFault, fatalFault, "something else"}
		for i := range rapid.IntRange(1, 3).Draw(t, "pods") {
			health := rapid.SampledFrom([]device.Health{device.Healthy, device.Unknown, device.Unhealthy}).Draw(t, "first")
			w.start(fmt.Sprintf("train-%d", i), false, health, "", start)
			for range rapid.IntRange(1, 4).Draw(t, "writes") {
				if next := rapid.SampledFrom([]device.Health{device.Unknown, device.Unhealthy}).Draw(t, "next"); next.WorseThan(health) {
					health = next
				}
				message := ""
				if health == device.Unhealthy {
					message = rapid.SampledFrom(grave).Draw(t, "message")
				}
				w.write(i, health, message, start)
				sent = append(sent, w.reading(w.pods[i]))
			}
		}
		shuffled := rapid.Permutation(append(sent, rapid.SliceOf(rapid.SampledFrom(sent)).Draw(t, "again")...)).Draw(t, "order")
		first, then := readings(t, w, sent), readings(t, w, shuffled)
		if a, b := encode(t, sameCase(first)), encode(t, sameCase(then)); !bytes.Equal(a, b) {
			t.Fatalf("another order gave another case\nin order %s\nshuffled %s", a, b)
		}
	})
}

// O3: once a case is open, readings that a newer one of their Pod has overtaken on
// the way count too, better or worse.
func TestInAnOpenCaseLateReadingsCountAsTheyWouldHaveInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(gpu, true)
		opener := w.start("serve-0", false, device.Unknown, "", start)
		sent := []quarantine.Reading{w.reading(w.pods[opener])}
		for i := range rapid.IntRange(1, 3).Draw(t, "pods") {
			w.start(fmt.Sprintf("train-%d", i), false, device.Healthy, "", start)
			for range rapid.IntRange(1, 4).Draw(t, "writes") {
				health, message := fate(t, suspectFault, majorFault, fatalFault, appError)
				w.write(len(w.pods)-1, health, message, start)
				sent = append(sent, w.reading(w.pods[len(w.pods)-1]))
			}
		}
		order := rapid.Permutation(sent[1:]).Draw(t, "order")
		first, then := readings(t, w, sent), readings(t, w, append(sent[:1:1], order...))
		for _, c := range []*quarantine.Case{&first, &then} {
			// A better reading is doubted and a worse one not, so how long the
			// readings were good differs with the order, as it should.
			c.GoodSince = time.Time{}
		}
		if a, b := encode(t, sameCase(first)), encode(t, sameCase(then)); !bytes.Equal(a, b) {
			t.Fatalf("another order gave another case\nin order %s\nshuffled %s", a, b)
		}
	})
}

// readings feeds readings at one moment, and then a live look's answer.
func readings(t *rapid.T, w *world, all []quarantine.Reading) quarantine.Case {
	r := &run{t: t, w: w, c: quarantine.Case{Device: gpu}, p: enforce(), now: start.Add(time.Second)}
	for _, reading := range all {
		r.tell(quarantine.Observed{Node: "anvil-07", Lost: true, Incarnation: oldCard, Readings: []quarantine.Reading{reading}})
	}
	look := quarantine.Look{Device: gpu, Asked: r.now}
	for _, report := range r.c.Reports {
		look.Known = append(look.Known, report.Pod)
	}
	answer := w.look(look, r.now)
	for i := range answer.Readings {
		// The starter's clock and the reader's are one here.
		answer.Readings[i].Observed = start
	}
	r.tell(answer)
	return r.c
}

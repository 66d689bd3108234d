package quarantine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// K4: the state of a case stays well under 64 KiB, whatever drivers, people and
// the API server write, and however many Pods come and go.
func TestACaseStaysSmall(t *testing.T) {
	texts := map[string]func(i int) string{
		"long messages":            func(i int) string { return fmt.Sprintf("%s %d: %s", fatalFault, i, strings.Repeat("x", 900)) },
		"messages that JSON grows": func(i int) string { return fmt.Sprintf("%d %s", i, strings.Repeat("<\x01\"&", 200)) },
		"messages in many bytes":   func(i int) string { return fmt.Sprintf("%d %s", i, strings.Repeat("故障", 150)) },
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			l := live(t, gpu, enforce())
			for i := range 200 {
				l.now = l.now.Add(time.Second)
				pod := fmt.Sprintf("a-training-job-with-a-rather-long-name-%d", i)
				r := MakeReading(pod).Unhealthy(text(i))
				looked := MakeLooked().Reading(r)
				for j := range 200 {
					looked.Holder(fmt.Sprintf("a-training-job-with-a-rather-long-name-%d", j))
				}
				// Nothing is announced, as when the API is away.
				for _, e := range []event{
					observed(r), reported(quarantine.OutcomeRefused, text(i)), looked.Answer(),
					always(quarantine.Message{Verb: quarantine.VerbRelease, Actor: "oncall@example.com", Reason: text(i)[:min(len(text(i)), 80)]}),
					always(quarantine.Message{Verb: quarantine.VerbRelease, Actor: "oncall@example.com", Reason: text(i)}),
					always(quarantine.Message{Verb: quarantine.VerbRelease, Malformed: text(i)}),
				} {
					l.c, l.owed = quarantine.Decide(l.c, e(l.c, l.now), l.now, l.p)
				}
			}
			if n := len(l.c.Reports); n > 32 {
				t.Errorf("%d reports are kept, want at most 32", n)
			}
			if n := len(l.c.Holders); n > 32 {
				t.Errorf("%d holders are kept, want at most 32", n)
			}
			if size := len(encode(t, l.c)); size > 60<<10 {
				t.Errorf("the case takes %d bytes, want at most 60 KiB", size)
			} else {
				t.Logf("the case takes %d bytes", size)
			}
		})
	}
}

// O5: of more Pods than a case keeps, what the living and the gravest say stays.
func TestWhatIsKeptOfManyPodsIsWhatCounts(t *testing.T) {
	l := live(t, gpu, enforce())
	l.tell(observed(MakeReading("a-fault").Unhealthy(fatalFault)))
	for i := range 40 {
		l.tell(observed(MakeReading(fmt.Sprintf("ended-%d", i)).Unhealthy(majorFault).Ended()))
		l.tell(observed(MakeReading(fmt.Sprintf("live-%d", i)).Healthy()))
	}
	var faults, ended int
	for _, r := range l.c.Reports {
		if r.Health == device.Unhealthy && !r.Ended {
			faults++
		}
		if r.Ended {
			ended++
		}
	}
	if len(l.c.Reports) != 32 || faults != 1 || ended != 0 {
		t.Errorf("%d reports are kept, %d living faults and %d of ended Pods; want 32, 1 and 0", len(l.c.Reports), faults, ended)
	}
	if e := l.c.Evidence(); e.Value != device.Unhealthy || !e.Held {
		t.Errorf("the device is %s, held %t; want Unhealthy and held", e.Value, e.Held)
	}
}

// K3: decisions that could not be announced are given up oldest first, and the gap
// in their numbers shows it.
func TestNoticesThatPileUpShowTheirGap(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run(unheld())
	heard := l.c.NoticeSeq
	for i := range 100 {
		m := quarantine.Message{Verb: quarantine.VerbRelease, Actor: "oncall@example.com", Reason: fmt.Sprint(i)}
		l.c, l.owed = quarantine.Decide(l.c, m, l.now, l.p)
	}
	notices := commandOf[quarantine.Announce](t, l.owed).Notices
	if len(notices) != 24 || notices[0].Seq != heard+77 || notices[23].Seq != heard+100 {
		t.Errorf("%d notices wait, numbered %d to %d", len(notices), notices[0].Seq-heard, notices[len(notices)-1].Seq-heard)
	}
	l.c, l.owed = quarantine.Decide(l.c, quarantine.Announced{UpTo: notices[10].Seq}, l.now, l.p)
	if left := commandOf[quarantine.Announce](t, l.owed).Notices; len(left) != 13 || left[0].Seq != notices[11].Seq {
		t.Errorf("%d notices are left after eleven were announced", len(left))
	}
}

// Q7: a policy that can't be meant is refused, with everything that is wrong with
// it at once.
func TestAPolicyIsRefusedWithEverythingThatIsWrong(t *testing.T) {
	if err := quarantine.DefaultPolicy().Validate(); err != nil {
		t.Errorf("the default policy is refused: %v", err)
	}
	p := quarantine.DefaultPolicy()
	p.Mode, p.Grace, p.Lease, p.RecheckMax = "shadow", 0, -time.Second, time.Second
	want := `mode "shadow": want observe or enforce
grace 0s: want more than zero
lease -1s: want more than zero
recheck max 1s: want at least recheck first, 10s`
	if err := p.Validate(); err == nil || err.Error() != want {
		t.Errorf("refused with\n%v, want\n%s", err, want)
	}
}

package isolation

import (
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

const (
	// lookPause is how often a node is looked at without news, lookSoon while something
	// is about to be done, and lookLeast the least time between two looks.
	lookPause, lookSoon, lookLeast = 5 * time.Minute, time.Minute, 5 * time.Second
	// fresh is how old a look may be by which something is written.
	fresh = 30 * time.Second
	// leaseLimit is how long looks may find the same renewal of a node's Lease.
	leaseLimit = 50 * time.Second
	// blindAfter is after how long without a starter's count it isn't believed any more
	// that nothing justifies it.
	blindAfter = 10 * time.Minute
	// retryFirst and retryMost bound the pauses after what was refused.
	retryFirst, retryMost = 5 * time.Second, 5 * time.Minute
	// maxFaulty bounds the devices that a count names.
	maxFaulty = 64
)

// Decide returns what is remembered of a node after an event. It is total and
// deterministic, and never changes its arguments.
func Decide(i Isolation, e Event, now time.Time, p Policy) (Isolation, Answer) {
	d := &decision{Isolation: i.clone(), now: now, policy: p}
	switch e := e.(type) {
	case Reported:
		d.reported(e.Levels)
	case Looked:
		d.looked(e)
	case Written:
		d.written(e)
	case Taken:
		d.taken(e)
	case Offered:
		if e.Epoch == d.Epoch && d.Waiting == WaitsPermit {
			// It is read anew before anything is written.
			d.LookAt, d.RetryAt = d.now, d.now
		}
	case Message:
		d.message(e)
	case Announced:
		d.Notices = slices.DeleteFunc(d.Notices, func(n Notice) bool { return n.Seq <= e.UpTo })
	case Woke:
	}
	d.withoutPolicy()
	return d.Isolation, Answer{Phase: d.Phase, Open: d.Open()}
}

// decision is one call of Decide under way.
type decision struct {
	Isolation
	now    time.Time
	policy Policy
}

func (i Isolation) clone() Isolation {
	i.Words, i.Notices, i.Story = slices.Clone(i.Words), slices.Clone(i.Notices), slices.Clone(i.Story)
	return i
}

// reported takes in a starter's count. What is news is looked at.
func (d *decision) reported(l Levels) {
	if d.Phase == Closed {
		return
	}
	if len(l.Faulty) > maxFaulty {
		l.Faulty = l.Faulty[:maxFaulty]
	}
	news := !l.Same(d.Levels)
	d.Levels, d.ReportedAt = l, d.now
	if d.Phase == PhaseNone {
		d.Phase, d.Epoch, d.Since, d.LookAt = Considered, d.now.UnixMilli(), d.now, d.now
		return
	}
	if news {
		d.lookBy(maxTime(d.now, d.LookedAt.Add(lookLeast)))
	}
}

func (d *decision) lookBy(at time.Time) {
	if d.LookAt.IsZero() || at.Before(d.LookAt) {
		d.LookAt = at
	}
}

// looked takes in what a live look found.
func (d *decision) looked(l Looked) {
	if !d.Open() {
		return
	}
	d.LookedAt, d.LookAt = d.now, d.now.Add(lookPause)
	if d.Phase == Considered {
		d.LookAt = d.now.Add(lookSoon)
	}
	if !l.Exists || d.UID != "" && l.UID != d.UID {
		d.end(EndGone, "the node is deleted, and what was written on it with it")
		return
	}
	d.UID = l.UID
	d.found(l.Found)
	if d.judge(l) != device.NodeUp {
		// What stands there is what a kubelet last wrote that is dead or not ready. Nothing
		// is concluded of it, neither way.
		if d.Waiting != WaitsNode && d.Mark.Way == "" && d.Phase == Considered {
			d.notify(NoticeOut, false, fmt.Sprintf("node %s is out (%s), which is no fault of it: it isn't isolated", d.Node, d.Verdict))
		}
		d.Waiting, d.Detail, d.UnjustifiedSince = WaitsNode, "the node is out: its Lease stands still, or its kubelet isn't ready", time.Time{}
		d.lookBy(d.now.Add(lookSoon))
		return
	}
	if d.Waiting == WaitsNode {
		d.Waiting, d.Detail = "", ""
	}
	ground, justified := Justify(d.Levels.Total, l.Faulty, l.Conditions, d.policy)
	d.weigh(ground, justified)
	if d.Open() && justified {
		d.others(l.Others)
	}
}

// found takes in Sickbay's own mark on the node, or that there is none.
func (d *decision) found(f *Found) {
	switch {
	case f != nil && f.Epoch > 0 && d.Mark.Way == "":
		// Its workflow was lost, or somebody wrote it whose answer was.
		d.Epoch, d.Since, d.Phase = f.Epoch, earliest(d.Since, f.Since), Isolated
		d.Mark = Mark{Way: f.Way, Since: f.Since, Missing: !f.Whole}
		d.Ground.Text = clip(f.Why, maxText)
		d.notify(NoticeAdopted, false, fmt.Sprintf("node %s was found isolated by Sickbay since %s (%s); it goes on under epoch %d", d.Node, stamp(f.Since), f.Way, d.Epoch))
	case f != nil && d.Mark.Way != "":
		d.Epoch = max(d.Epoch, f.Epoch)
		d.missing(!f.Whole)
		d.Mark.Way = f.Way
	case f == nil && d.Mark.Way != "":
		d.missing(true)
	}
}

// missing takes in whether somebody else took away what keeps the node out.
func (d *decision) missing(now bool) {
	if now && !d.Mark.Missing && !d.Lifting {
		d.notify(NoticePutBack, true, fmt.Sprintf("somebody took away what isolates node %s (%s); while it is justified it is put back. To have it lifted, send lift to workflow node/%s", d.Node, d.Mark.Way, d.Node))
	}
	d.Mark.Missing = now
}

// judge says what a look at the node is worth. Looks that find the same renewal of its
// Lease for too long are as good as a starter that does.
func (d *decision) judge(l Looked) device.NodeVerdict {
	if l.Lease != d.Lease || d.LeaseSince.IsZero() {
		d.Lease, d.LeaseSince = l.Lease, d.now
	}
	beat := d.Levels.Beat
	if l.Lease != "" && d.now.Sub(d.LeaseSince) > leaseLimit {
		beat = device.HeartbeatStopped
	} else if beat == device.HeartbeatStopped && d.ReportedAt.Before(d.LeaseSince) {
		beat = device.HeartbeatAdvancing // it moved since
	}
	d.Verdict = device.JudgeNode(beat, l.Ready)
	return d.Verdict
}

// weigh takes in whether the isolation is justified now.
func (d *decision) weigh(ground Ground, justified bool) {
	d.Justified = justified
	if justified {
		first := d.Ground.Kind == ""
		d.Ground = ground
		if !d.UnjustifiedSince.IsZero() || first && d.Phase == Considered {
			d.notify(NoticeConsidered, false, fmt.Sprintf("the policy isolates node %s: %s", d.Node, ground.Text))
		}
		d.UnjustifiedSince = time.Time{}
		if d.Phase == Spared && !d.SparedUntil.IsZero() && !d.SparedUntil.After(d.now) {
			d.Phase, d.SparedUntil = Considered, time.Time{}
		}
		if d.Phase == Spared && !d.SparedUntil.IsZero() {
			d.lookBy(d.SparedUntil)
		}
		return
	}
	switch {
	case d.Phase == Considered:
		d.end(EndUnjustified, "a live look found nothing that justifies to isolate it")
		return
	case d.now.Sub(d.ReportedAt) > blindAfter && d.policy.isolates():
		// No starter tells of devices that have no mark. Nothing is concluded from that.
		d.Detail, d.UnjustifiedSince = "no starter tells what the node's devices are like; it stays as it is until one does", time.Time{}
		return
	case d.UnjustifiedSince.IsZero():
		d.UnjustifiedSince = d.now
		if d.policy.isolates() {
			d.notify(NoticeCalm, false, fmt.Sprintf("nothing justifies any more that node %s is isolated; it is given back at %s if that lasts", d.Node, stamp(d.now.Add(d.policy.Calm))))
		}
	}
	over := d.UnjustifiedSince.Add(d.policy.Calm)
	if over.After(d.now) {
		d.lookBy(over)
		return
	}
	if d.Mark.Way == "" {
		d.end(EndUnjustified, "nothing justifies it any more")
	}
}

// others takes in who else keeps the node out.
func (d *decision) others(who string) {
	switch {
	case who == "" && d.Waiting == WaitsOthers:
		d.Waiting, d.Detail, d.RetryAt = "", "", time.Time{}
	case who != "" && d.Waiting != WaitsOthers && d.Mark.Way == "" && d.Phase == Considered && d.policy.Way == Cordon:
		d.Waiting, d.Detail = WaitsOthers, who
		d.notify(NoticeOthers, false, fmt.Sprintf("node %s is kept out already: %s. That stays with whoever did it", d.Node, who))
	}
}

// withoutPolicy ends what a policy justified that is taken away, where nothing has to be
// lifted first.
func (d *decision) withoutPolicy() {
	if d.Open() && !d.policy.isolates() && d.Mark.Way == "" && !d.LookedAt.IsZero() {
		d.end(EndPolicy, "the policy isolates no nodes any more")
	}
}

// written takes in what became of a Put.
func (d *decision) written(w Written) {
	if !d.Open() || w.Epoch != d.Epoch {
		return
	}
	switch w.Outcome {
	case InForce:
		d.Waiting, d.Detail, d.RetryAt, d.Tries = "", "", time.Time{}, 0
		again := d.Mark.Way != ""
		d.Phase = Isolated
		if !again {
			d.Mark = Mark{Since: d.now}
		}
		d.Mark.Way, d.Mark.Missing = w.Way, false
		d.LookAt = d.now.Add(lookPause)
		if again {
			d.notify(NoticePutBack, false, fmt.Sprintf("node %s is isolated again (%s): %s", d.Node, w.Way, d.Ground.Text))
			return
		}
		d.notify(NoticeIsolated, true, fmt.Sprintf("node %s is isolated (%s): %s", d.Node, w.Way, d.Ground.Text))
	case WouldBe:
		d.Waiting, d.Detail, d.RetryAt, d.Tries = "", "", time.Time{}, 0
		if d.Phase != Observed {
			d.Phase = Observed
			d.notify(NoticeWouldBe, false, fmt.Sprintf("mode enforce would isolate node %s (%s): %s", d.Node, d.policy.Way, d.Ground.Text))
		}
	case Held:
		if d.Waiting != WaitsPermit {
			d.notify(NoticeHeld, true, fmt.Sprintf("node %s isn't isolated yet: %s", d.Node, w.Detail))
		}
		d.Waiting, d.Detail = WaitsPermit, w.Detail
		d.RetryAt = d.now.Add(max(w.Again, retryFirst))
		d.lookBy(d.RetryAt)
	case Foreign:
		if d.Waiting != WaitsOthers {
			d.notify(NoticeOthers, false, fmt.Sprintf("node %s is kept out already: %s. That stays with whoever did it", d.Node, w.Detail))
		}
		// What was ours is theirs now, where somebody took away what tells so.
		d.Waiting, d.Detail, d.Phase, d.Mark = WaitsOthers, w.Detail, Considered, Mark{}
		d.RetryAt = d.now.Add(lookPause)
	case Refused:
		if d.Waiting != WaitsMark || d.Detail != w.Detail {
			d.notify(NoticeRefused, true, fmt.Sprintf("node %s can't be isolated: %s", d.Node, w.Detail))
		}
		d.refused(w.Detail)
	case Superseded, NodeOut, NodeGone:
		d.LookAt, d.RetryAt = d.now.Add(lookLeast), d.now.Add(lookLeast)
	}
}

// refused has another try later.
func (d *decision) refused(detail string) {
	d.Waiting, d.Detail = WaitsMark, clip(detail, maxText)
	d.RetryAt = d.now.Add(min(retryFirst<<min(d.Tries, 10), retryMost))
	d.Tries++
}

// taken takes in what became of a Lift.
func (d *decision) taken(t Taken) {
	if !d.Open() || t.Epoch != d.Epoch {
		return
	}
	switch t.Outcome {
	case Lifted, Foreign, NodeGone:
		text := fmt.Sprintf("node %s is given back", d.Node)
		if t.Outcome == Foreign {
			text = fmt.Sprintf("nothing of Sickbay's is left on node %s to lift: %s", d.Node, t.Detail)
		}
		d.Mark, d.RetryAt, d.Tries, d.Waiting, d.Detail = Mark{}, time.Time{}, 0, "", ""
		d.notify(NoticeLifted, false, text+": "+d.whyLifted())
		if d.Lifting {
			d.spare()
			return
		}
		end, why := EndUnjustified, "nothing justifies it any more"
		if !d.policy.isolates() {
			end, why = EndPolicy, "the policy isolates no nodes any more"
		}
		d.end(end, why)
	case Refused:
		if d.Waiting != WaitsMark || d.Detail != t.Detail {
			d.notify(NoticeRefused, true, fmt.Sprintf("node %s can't be given back: %s", d.Node, t.Detail))
		}
		d.refused(t.Detail)
	case Superseded:
		d.LookAt, d.RetryAt = d.now, d.now.Add(lookLeast)
	}
}

func (d *decision) whyLifted() string {
	switch {
	case d.Lifting:
		return "an operator said so"
	case !d.policy.isolates():
		return "the policy isolates no nodes any more"
	}
	return "nothing has justified it since " + stamp(d.UnjustifiedSince)
}

// end closes it.
func (d *decision) end(why End, text string) {
	d.Phase, d.End, d.Ended = Closed, why, d.now
	d.Waiting, d.Detail, d.LookAt, d.RetryAt, d.Mark = "", "", time.Time{}, time.Time{}, Mark{}
	d.notify(NoticeClosed, false, fmt.Sprintf("over for node %s: %s", d.Node, text))
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

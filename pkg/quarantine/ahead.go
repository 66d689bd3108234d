package quarantine

import "time"

// aheadFor is how long after it was made a mark is taken over by the case that it was
// made ahead of. It comes a moment later; a clock may be a little off.
const aheadFor = 10 * time.Minute

// nextEpoch is the epoch of a case that opens now: the one under which its mark was made
// ahead of it, or one above all earlier ones.
func (d *decision) nextEpoch(phase Phase) int64 {
	if made := d.made.Epoch; d.p.Rules >= rulesOfBursts && phase == PhaseQuarantined && made > d.c.Epoch &&
		d.now.Sub(time.UnixMilli(made)).Abs() < aheadFor {
		return made
	}
	return max(d.now.UnixMilli(), d.c.Epoch+1)
}

// takeMade takes over the mark that was made ahead of the case that has just opened. A
// look at the device follows at once, and finds out if it is gone meanwhile.
func (d *decision) takeMade() {
	c, made := &d.c, d.made
	if made.Epoch == 0 || c.Epoch != made.Epoch || c.Phase != PhaseQuarantined || c.Mark.State != MarkWanted {
		return
	}
	d.markReported(MarkReported{Outcome: OutcomeInForce, Epoch: c.Epoch, Revision: c.Mark.Revision, Name: clip(made.Name, maxName), Version: made.Version})
	if last := len(c.Notices) - 1; made.At.Before(d.now) && last >= 0 {
		c.Mark.InForceSince = made.At
		if !c.FaultSeen.IsZero() {
			c.Notices[last].Took = max(made.At.Sub(c.FaultSeen), 0)
		}
	}
	d.advance()
}

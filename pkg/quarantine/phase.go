package quarantine

// Phase is where a case stands.
type Phase string

const (
	// PhaseNone: there is no case.
	PhaseNone Phase = ""
	// PhaseSuspect: Unknown, stale or missing, inside its window. Alerts only.
	PhaseSuspect Phase = "Suspect"
	// PhaseRestricted: Unknown outlasted the window; no new allocations.
	PhaseRestricted Phase = "Restricted"
	// PhaseQuarantined: a confirmed fault; record, mark and alert.
	PhaseQuarantined Phase = "Quarantined"
	// PhaseRecovering: an attempt at the gates is under way.
	PhaseRecovering Phase = "Recovering"
	// PhaseRetired: out until the hardware changes or an operator says repaired.
	PhaseRetired Phase = "Retired"
	// PhaseGone: the device is absent past its settling time; its mark is kept.
	PhaseGone Phase = "Gone"
	// PhaseReleased: proven and given back; watched for a relapse.
	PhaseReleased Phase = "Released"
	// PhaseClosed: the case is over. End tells how.
	PhaseClosed Phase = "Closed"
)

// OpenPhases are the phases of cases that aren't over, in the order of their lives.
func OpenPhases() []Phase {
	return []Phase{PhaseSuspect, PhaseRestricted, PhaseQuarantined, PhaseRecovering, PhaseRetired, PhaseGone, PhaseReleased}
}

// Waiting says what a case waits for inside its phase. A case that isn't closed
// always has either a deadline of its own or a Waiting with a name.
type Waiting string

const (
	// WaitingForNothing: the case's own deadlines carry it on.
	WaitingForNothing Waiting = ""
	// WaitingForMark: the mark isn't in force yet; it is tried again.
	WaitingForMark Waiting = "WaitingForMark"
	// WaitingForPermit: as many devices are kept out already as may be, or an operator
	// paused something that it is in. It is marked when it is its turn, if it is still bad.
	WaitingForPermit Waiting = "WaitingForPermit"
	// WaitingForLook: a mark was adopted and is being confirmed.
	WaitingForLook Waiting = "WaitingForLook"
	// WaitingForHolder: somebody still has the device and may not be moved.
	WaitingForHolder Waiting = "WaitingForHolder"
	// WaitingForCoolDown: nobody has the device; the cool-down runs.
	WaitingForCoolDown Waiting = "WaitingForCoolDown"
	// WaitingForRecovery: it is time for the gates, and nothing can be tried: no
	// namespace and no image is given for it. The device stays out.
	WaitingForRecovery Waiting = "WaitingForRecovery"
	// WaitingForGates: an attempt is under way.
	WaitingForGates Waiting = "WaitingForGates"
	// WaitingForDriver: a taint of the driver keeps our claim out, or its kubelet has
	// nothing to say of the device. The driver, or the policy that names the taints that a
	// probe may tolerate, carries the case on.
	WaitingForDriver Waiting = "WaitingForDriver"
	// WaitingForProbe: a gate can't be tried, through no fault of the device: its Pod
	// can't run. It is tried again; whoever runs the cluster can mend it.
	WaitingForProbe Waiting = "WaitingForProbe"
	// WaitingForTurn: all gates are passed, and other devices come back first.
	WaitingForTurn Waiting = "WaitingForTurn"
	// WaitingForCleanUp: what was made for the attempt has to be gone first.
	WaitingForCleanUp Waiting = "WaitingForCleanUp"
	// WaitingForRelapse: the device is back; a fault in this time counts against it.
	WaitingForRelapse Waiting = "WaitingForRelapse"
	// WaitingForRestriction: Unknown outlasted the window. A live look that finds it so
	// on a node that lives is still to come, or the answer whether the device may be
	// restricted.
	WaitingForRestriction Waiting = "WaitingForRestriction"
	// WaitingForIncident: what the device suffers from is a part of something larger,
	// which is looked into as a whole. Its window doesn't end meanwhile.
	WaitingForIncident Waiting = "WaitingForIncident"
	// WaitingForNode: the node is out, so that nothing can be judged. Windows stand
	// still; everything is read anew when it returns.
	WaitingForNode Waiting = "WaitingForNode"
	// WaitingForEvidence: nobody holds the device, so nobody reports on it. A new
	// holder, its driver's sign of life, or an operator's word carries the case on.
	WaitingForEvidence Waiting = "WaitingForEvidence"
	// WaitingForHealth: a restricted device, or one that is not kept out, waits for
	// its driver to report it healthy, and for that to last.
	WaitingForHealth Waiting = "WaitingForHealth"
	// WaitingForReturn: the device is gone; it comes back or is forgotten.
	WaitingForReturn Waiting = "WaitingForReturn"
	// WaitingForOperator: only an operator's word carries the case on.
	WaitingForOperator Waiting = "WaitingForOperator"
)

// End says how a case ended.
type End string

const (
	// EndNone: it didn't, yet.
	EndNone End = ""
	// EndHealthBack: the health of a device of which nothing was found but Unknown came
	// back, and lasted.
	EndHealthBack End = "HealthBack"
	// EndAdvisory: the device was never kept out (no way to mark it, or mode
	// observe) and reported healthy throughout the stability window. It is never
	// counted as a release.
	EndAdvisory End = "Advisory"
	// EndNeverMarked: the device was bad while there was no permit to keep it out, and
	// became healthy, for long enough, before there was.
	EndNeverMarked End = "NeverMarked"
	// EndReleased: the device passed all gates and was given back.
	EndReleased End = "Released"
	// EndGone: the device is gone for good.
	EndGone End = "Gone"
	// EndMarkGone: a mark to adopt turned out not to exist any more.
	EndMarkGone End = "MarkGone"
)

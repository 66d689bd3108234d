package device

// A node is judged by two things that its kubelet does: it renews the node's Lease,
// and it posts the condition Ready. Both are evidence of the node and of nothing on it.

// Heartbeat is how a node's Lease behaves. Only that it changes counts: the time in it
// is the kubelet's, and whose clock is right nobody knows.
type Heartbeat string

const (
	// HeartbeatUnseen: nothing can be said. The Lease hasn't been watched for long
	// enough, or there is none.
	HeartbeatUnseen Heartbeat = ""
	// HeartbeatAdvancing: it was seen to change.
	HeartbeatAdvancing Heartbeat = "Advancing"
	// HeartbeatStopped: it was watched for as long as may be, and didn't change.
	HeartbeatStopped Heartbeat = "Stopped"
)

// Readiness is a node's condition Ready.
type Readiness string

const (
	// ReadyTrue and ReadyFalse are the kubelet's own word.
	ReadyTrue  Readiness = "True"
	ReadyFalse Readiness = "False"
	// ReadyUnknown is what the node controller writes when it hears nothing of the
	// kubelet; a node without the condition is the same.
	ReadyUnknown Readiness = "Unknown"
)

// NodeVerdict says what a reading that was taken on a node is worth.
type NodeVerdict string

const (
	// NodeUp: the kubelet lives and is ready. What it writes is of now.
	NodeUp NodeVerdict = ""
	// NodeDegraded: the kubelet lives and isn't ready, or was just heard again. What
	// it writes may be wrong either way: judgement waits.
	NodeDegraded NodeVerdict = "Degraded"
	// NodeOutage: nothing is heard of the kubelet. What stands in the API is what it
	// last wrote.
	NodeOutage NodeVerdict = "Outage"
)

// JudgeNode takes the two together. A Lease that can't be judged leaves it to Ready
// alone: the node controller goes by Leases too, and gives them 50 s.
func JudgeNode(beat Heartbeat, ready Readiness) NodeVerdict {
	switch {
	case beat == HeartbeatStopped:
		return NodeOutage
	case ready == ReadyTrue:
		return NodeUp
	case ready == ReadyFalse:
		return NodeDegraded
	case beat == HeartbeatAdvancing:
		return NodeDegraded
	}
	return NodeOutage
}

// Staleness is why what was read on the node can't be believed.
func (v NodeVerdict) Staleness() Staleness {
	switch v {
	case NodeDegraded:
		return NodeNotReady
	case NodeOutage:
		return NodeSilent
	}
	return Fresh
}

// Verdict says whose trouble an entry is.
type Verdict string

const (
	// NoTrouble: the entry is Healthy and can be believed.
	NoTrouble Verdict = ""
	// DeviceFault: the driver says that the device is bad.
	DeviceFault Verdict = "DeviceFault"
	// DriverFault: the driver, or the way of its word to the kubelet, is silent.
	DriverFault Verdict = "DriverFault"
	// DriverGone: nobody stands behind the entry, since the driver's slices or the
	// plugin's devices are gone.
	DriverGone Verdict = "DriverGone"
	// NodeHeld: judgement waits for the node.
	NodeHeld Verdict = "NodeHeld"
	// NodeDown: the entry is what a dead kubelet last wrote.
	NodeDown Verdict = "NodeDown"
	// NotSeen: Sickbay itself can't see.
	NotSeen Verdict = "NotSeen"
)

// Verdict judges one entry by what is around it. Only the first of these is ever the
// device's.
func (s Surroundings) Verdict(path Path, entry Health) Verdict {
	switch stale := s.Freshness(path); {
	case stale == WatchBehind:
		return NotSeen
	case stale == NodeSilent:
		return NodeDown
	case stale == NodeNotReady:
		return NodeHeld
	case entry == Unhealthy:
		// Said by a driver that was there, and stands until it is taken back.
		return DeviceFault
	case entry == Unknown:
		return DriverFault
	case stale != Fresh:
		return DriverGone
	}
	return NoTrouble
}

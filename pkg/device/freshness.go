package device

// Staleness says why a Healthy can't be believed now. The empty value means
// that it can.
type Staleness string

const (
	Fresh Staleness = ""
	// WatchBehind: Sickbay itself can't see. That is never the device's fault.
	WatchBehind Staleness = "WatchBehind"
	// NodeSilent: the node's Lease doesn't advance, so its entries are what a
	// dead kubelet last wrote.
	NodeSilent Staleness = "NodeSilent"
	// NodeNotReady: the kubelet lives and says that it isn't ready.
	NodeNotReady Staleness = "NodeNotReady"
	// DriverAbsent: the driver's slices are gone or incomplete.
	DriverAbsent Staleness = "DriverAbsent"
	// PluginAbsent: nothing of the resource is allocatable, so the kubelet
	// reports its default for a missing device, which is Healthy.
	PluginAbsent Staleness = "PluginAbsent"
	// NotListed: the plugin lists fewer devices than when it called this one
	// Unhealthy. The kubelet reports its default for one that left the list.
	NotListed Staleness = "NotListed"
)

// Surroundings is what has to be true around a reading for it to say something
// of now. An entry carries no time of its own (KEP-4680).
type Surroundings struct {
	WatchCurrent bool
	Node         NodeVerdict
	// PoolComplete is asked on the DRA path only.
	PoolComplete bool
	// Offer is what the node offers of the resource; asked on the device-plugin
	// path only.
	Offer Offer
}

// Freshness judges a reading by its surroundings, nearest cause first.
func (s Surroundings) Freshness(path Path) Staleness {
	switch {
	case !s.WatchCurrent:
		return WatchBehind
	case s.Node != NodeUp:
		return s.Node.Staleness()
	case path == PathDRA && !s.PoolComplete:
		return DriverAbsent
	case path == PathPlugin && !s.Offer.Vouched():
		return PluginAbsent
	}
	return Fresh
}

package device

import (
	"cmp"
	"slices"
	"strings"
)

// UnmappedReason says why an entry's device can't be told from the API.
type UnmappedReason string

const (
	// EmptyID: the entry has no resourceID.
	EmptyID UnmappedReason = "EmptyID"
	// MalformedName: the entry's name is neither a resource nor a claim.
	MalformedName UnmappedReason = "MalformedName"
	// ClaimUnknown: the Pod has no claim of that name, or the claim is deleted.
	ClaimUnknown UnmappedReason = "ClaimUnknown"
	// ClaimNotAllocated: the claim has no allocation (any more).
	ClaimNotAllocated UnmappedReason = "ClaimNotAllocated"
	// RequestUnknown: the allocation has no result for the entry's request.
	RequestUnknown UnmappedReason = "RequestUnknown"
	// SeveralDevices: the ID names the claim, the claim has several devices and
	// they don't share one health. Only the kubelet's own podresources API
	// could tell them apart.
	SeveralDevices UnmappedReason = "SeveralDevices"
	// NotInClaim: the ID names a device that the claim doesn't have. Nobody's
	// status speaks of devices that its Pod wasn't given.
	NotInClaim UnmappedReason = "NotInClaim"
)

// Unmapped is an entry that doesn't lead to one device. It is shown and counted,
// and never turned into a fault of some device by guessing.
type Unmapped struct {
	Node      string         `json:"node"`
	Pod       PodRef         `json:"pod"`
	Container string         `json:"container"`
	Entry     string         `json:"entry"`
	ID        string         `json:"id"`
	Health    Health         `json:"health"`
	Message   string         `json:"message,omitempty"`
	Reason    UnmappedReason `json:"reason"`
	// Candidates are the devices that the entry may be about, as narrow as the
	// evidence allows, sorted.
	Candidates []Key `json:"candidates,omitempty"`
}

// Observation is one reading of one device's health from one container's status.
type Observation struct {
	Device    Key
	Node      string
	Pod       PodRef
	Container string
	// Claim is the claim through which the Pod has the device; empty on the
	// device-plugin path.
	Claim   string
	Health  Health
	Message string
	// ResourceVersion is the Pod's at this reading, not yet the status version.
	ResourceVersion Version
	// Frozen marks an entry that the kubelet no longer keeps: what a
	// device-plugin entry of a terminated container last said.
	Frozen bool
	// Monitor marks a reading of a Pod that doesn't hold the device: its claim has
	// admin access, or it is Sickbay's own.
	Monitor bool
}

// ClaimLookup finds a claim by namespace and name.
type ClaimLookup func(namespace, name string) (Claim, bool)

// Observe reads every health entry of a Pod. What it returns is sorted and free
// of duplicates, whatever order the kubelet wrote (the order of DRA entries is
// random). A Pod without a node has no devices yet.
func Observe(pod Pod, claims ClaimLookup) ([]Observation, []Unmapped) {
	if pod.Node == "" || pod.Terminal {
		return nil, nil
	}
	var seen []Observation
	var unmapped []Unmapped
	for _, container := range pod.Containers {
		reader := containerReader{pod: pod, container: container, claims: claims}
		reader.read()
		seen = append(seen, reader.seen...)
		unmapped = append(unmapped, reader.unmapped...)
	}
	slices.SortFunc(seen, compareObservations)
	slices.SortFunc(unmapped, compareUnmapped)
	return slices.Compact(seen), slices.CompactFunc(unmapped, func(a, b Unmapped) bool { return compareUnmapped(a, b) == 0 })
}

func compareObservations(a, b Observation) int {
	return cmp.Or(
		a.Device.Compare(b.Device),
		strings.Compare(a.Container, b.Container),
		b.Health.rank()-a.Health.rank(),
		strings.Compare(a.Message, b.Message),
		strings.Compare(a.Claim, b.Claim),
		compareBool(a.Monitor, b.Monitor),
		compareBool(a.Frozen, b.Frozen),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func compareUnmapped(a, b Unmapped) int {
	return cmp.Or(
		strings.Compare(a.Container, b.Container),
		strings.Compare(a.Entry, b.Entry),
		strings.Compare(a.ID, b.ID),
		b.Health.rank()-a.Health.rank(),
		strings.Compare(a.Message, b.Message),
		strings.Compare(string(a.Reason), string(b.Reason)),
	)
}

type containerReader struct {
	pod       Pod
	container Container
	claims    ClaimLookup
	seen      []Observation
	unmapped  []Unmapped
}

func (r *containerReader) read() {
	byClaim := map[string][]Entry{}
	var order []string
	for _, entry := range r.container.Entries {
		name, isClaim := strings.CutPrefix(entry.Name, "claim:")
		switch {
		case entry.ResourceID == "":
			r.refuse(entry, EmptyID, nil)
		case !isClaim:
			r.readPlugin(entry)
		case name == "":
			r.refuse(entry, MalformedName, nil)
		default:
			if _, ok := byClaim[name]; !ok {
				order = append(order, name)
			}
			byClaim[name] = append(byClaim[name], entry)
		}
	}
	for _, name := range order {
		r.readClaim(name, byClaim[name])
	}
}

func (r *containerReader) readPlugin(entry Entry) {
	key, err := NewPlugin(r.pod.Node, entry.Name, entry.ResourceID)
	if err != nil {
		r.refuse(entry, MalformedName, nil)
		return
	}
	r.accept(entry, key, "", false, r.container.Terminated)
}

// readClaim reads all entries of one name together, because a claim with several
// devices can only be told apart by looking at all of them.
func (r *containerReader) readClaim(name string, entries []Entry) {
	claimName, request, _ := strings.Cut(name, "/")
	claim, results, why := r.allocation(claimName, request)

	unnamed := slices.Clone(results)
	var opaque []Entry
	for _, entry := range entries {
		key, err := ParseDRA(entry.ResourceID)
		if err != nil {
			opaque = append(opaque, entry)
			continue
		}
		// The kubelet named the device itself; the claim only tells whether the
		// Pod holds it, and may be gone by now.
		if len(claim.Results) > 0 && !slices.ContainsFunc(claim.Results, func(a Allocated) bool { return a.Device == key }) {
			r.refuse(entry, NotInClaim, devicesOf(claim.Results))
			continue
		}
		monitor := slices.ContainsFunc(results, func(a Allocated) bool { return a.Device == key && !a.Holds() })
		unnamed = slices.DeleteFunc(unnamed, func(a Allocated) bool { return a.Device == key })
		r.accept(entry, key, claim.Name, monitor, false)
	}
	if len(opaque) == 0 {
		return
	}
	if why != "" || len(unnamed) == 0 {
		if why == "" {
			why = RequestUnknown
		}
		for _, entry := range opaque {
			r.refuse(entry, why, nil)
		}
		return
	}
	r.readOpaque(opaque, claim, unnamed)
}

// readOpaque settles entries whose IDs name no device (CDI IDs). One result for
// one entry is certain. As many entries as results with one common health are
// certain too: it doesn't matter which is which. So are faults only if their
// messages are alike, for one may be an application's error and the other the
// device's. Everything else would be a guess.
func (r *containerReader) readOpaque(entries []Entry, claim Claim, results []Allocated) {
	alike := !slices.ContainsFunc(entries, func(e Entry) bool {
		return e.Health != entries[0].Health || e.Health == Unhealthy && e.Message != entries[0].Message
	})
	if len(entries) == len(results) && alike {
		messages := make([]string, len(entries))
		for i, e := range entries {
			messages[i] = e.Message
		}
		common := Entry{Health: entries[0].Health, Message: joinMessages(messages)}
		for _, result := range results {
			r.accept(common, result.Device, claim.Name, !result.Holds(), false)
		}
		return
	}
	for _, entry := range entries {
		r.refuse(entry, SeveralDevices, devicesOf(results))
	}
}

// devicesOf lists the devices of an allocation, sorted.
func devicesOf(results []Allocated) []Key {
	keys := make([]Key, len(results))
	for i, result := range results {
		keys[i] = result.Device
	}
	slices.SortFunc(keys, Key.Compare)
	return slices.Compact(keys)
}

// joinMessages gives all messages that go with one health as one text, the same
// for every order in which they may come. The separator is the one at which
// pkg/reason splits.
func joinMessages(messages []string) string {
	said := slices.DeleteFunc(slices.Clone(messages), func(m string) bool { return m == "" })
	slices.Sort(said)
	return strings.Join(slices.Compact(said), "; ")
}

// allocation finds the results behind an entry's name: through
// spec.resourceClaims and its statuses, or through the claim generated for
// DRA-backed extended resources, whose own name the entry carries.
func (r *containerReader) allocation(name, request string) (Claim, []Allocated, UnmappedReason) {
	object := ""
	for _, pc := range r.pod.Claims {
		if pc.Name == name {
			object = pc.Claim
		}
	}
	if object == "" && name == r.pod.ExtendedClaim {
		object = name
	}
	if object == "" {
		return Claim{}, nil, ClaimUnknown
	}
	claim, ok := r.claims(r.pod.Ref.Namespace, object)
	if !ok {
		return Claim{Name: object}, nil, ClaimUnknown
	}
	if len(claim.Results) == 0 {
		return claim, nil, ClaimNotAllocated
	}
	if request == "" {
		return claim, slices.Clone(claim.Results), ""
	}
	var results []Allocated
	for _, result := range claim.Results {
		if result.Request == request || strings.HasPrefix(result.Request, request+"/") {
			results = append(results, result)
		}
	}
	if len(results) == 0 {
		return claim, nil, RequestUnknown
	}
	return claim, results, ""
}

func (r *containerReader) accept(entry Entry, key Key, claim string, monitor, frozen bool) {
	r.seen = append(r.seen, Observation{
		Device:          key,
		Node:            r.pod.Node,
		Pod:             r.pod.Ref,
		Container:       r.container.Name,
		Claim:           claim,
		Health:          entry.Health,
		Message:         entry.Message,
		ResourceVersion: r.pod.ResourceVersion,
		Frozen:          frozen,
		Monitor:         monitor || r.pod.Ours,
	})
}

func (r *containerReader) refuse(entry Entry, why UnmappedReason, candidates []Key) {
	r.unmapped = append(r.unmapped, Unmapped{
		Node:       r.pod.Node,
		Pod:        r.pod.Ref,
		Container:  r.container.Name,
		Entry:      entry.Name,
		ID:         entry.ResourceID,
		Health:     entry.Health,
		Message:    entry.Message,
		Reason:     why,
		Candidates: candidates,
	})
}

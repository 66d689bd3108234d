package device

// The views below are what is read from Pods and claims, in a form without
// Kubernetes types: the starter and the activities fill them, this package
// reasons about them.

// PodRef names one Pod for good: a Pod of the same name made anew has another UID.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// String is namespace/name.
func (r PodRef) String() string { return r.Namespace + "/" + r.Name }

// Pod is one Pod's status as far as device health is concerned.
type Pod struct {
	Ref  PodRef
	Node string
	// ResourceVersion is the Pod's, at which this status was read.
	ResourceVersion Version
	// Terminal is set for the phases Succeeded and Failed: entries still there
	// are frozen and say nothing of now.
	Terminal bool
	// Pending is set until the first container has started.
	Pending bool
	// Ours marks a Pod of Sickbay's own, by which a device is tried. It holds none.
	Ours bool
	// ContainersReady is the Pod's condition of that name. It says nothing of any
	// device, and is only shown.
	ContainersReady bool
	// Claims maps the names of spec.resourceClaims to claims, in the order of
	// the spec. A name whose claim isn't generated yet has an empty Claim.
	Claims []PodClaim
	// ExtendedClaim is the claim generated for DRA-backed extended resources
	// (status.extendedResourceClaimStatus), or empty.
	ExtendedClaim string
	// Containers holds the statuses of regular, init and ephemeral containers.
	Containers []Container
}

// ClaimNames are the claims that the Pod refers to, in its own namespace, the one
// for its DRA-backed extended resources last.
func (p Pod) ClaimNames() []string {
	var names []string
	for _, c := range p.Claims {
		if c.Claim != "" {
			names = append(names, c.Claim)
		}
	}
	if p.ExtendedClaim != "" {
		names = append(names, p.ExtendedClaim)
	}
	return names
}

// PodClaim is one entry of spec.resourceClaims and the claim behind it.
type PodClaim struct {
	Name  string
	Claim string
}

// Container is one container's health entries.
type Container struct {
	Name string
	// Terminated is set when the container doesn't run now. The kubelet erases
	// its DRA entries and leaves its device-plugin entries as they were.
	Terminated bool
	Entries    []Entry
}

// Entry is one health entry: allocatedResourcesStatus[].name and one element of
// its resources.
type Entry struct {
	// Name is an extended resource name, "claim:<claim>" or
	// "claim:<claim>/<request>".
	Name string
	// ResourceID is the plugin's device ID, "driver/pool/device", or the first
	// CDI ID that the driver gave, which need not name a device.
	ResourceID string
	Health     Health
	// Message is at most 1024 bytes, and only ever set on the DRA path.
	Message string
}

// Claim is one ResourceClaim's allocation.
type Claim struct {
	Namespace string
	Name      string
	UID       string
	Results   []Allocated
	// ReservedFor lists the Pods that may use the claim now. It, and not any
	// Pod's spec, says who has to leave before the device is free.
	ReservedFor []PodRef
}

// Allocated is one element of status.allocation.devices.results.
type Allocated struct {
	// Request is the request's name, or "request/subrequest" where the claim
	// gave a prioritised list.
	Request string
	Device  Key
	// Class is the DeviceClass that the request names; empty where the claim's
	// spec has no such request.
	Class string
	// AdminAccess marks a claim that shares the device without using it (a
	// monitor). Such a claim is never a holder.
	AdminAccess bool
	// Ours marks a claim of Sickbay's own, by which the device is tried. It takes the
	// device, so that nobody else gets it meanwhile, and is no holder either.
	Ours bool
}

// Holds tells whether who uses the claim holds the device.
func (a Allocated) Holds() bool { return !a.AdminAccess && !a.Ours }

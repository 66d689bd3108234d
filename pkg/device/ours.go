package device

// Ours is the namespace of the claims and Pods by which Sickbay tries a device before it
// is given back. What is in there never holds a device, and never uses one: it has it for
// the device's case. Kubernetes lets a claim be reserved for Pods of its own namespace
// only, so that a claim is Sickbay's exactly where its Pods are. Empty: there is none.
type Ours string

// Pod is a Pod with the word whether it is Sickbay's.
func (o Ours) Pod(p Pod) Pod {
	p.Ours = o != "" && p.Ref.Namespace == string(o)
	return p
}

// Claim is a claim with the same word of all that it was allocated.
func (o Ours) Claim(c Claim) Claim {
	if o == "" || c.Namespace != string(o) {
		return c
	}
	results := make([]Allocated, len(c.Results))
	for i, result := range c.Results {
		result.Ours = true
		results[i] = result
	}
	c.Results = results
	return c
}

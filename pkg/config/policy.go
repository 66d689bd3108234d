package config

import (
	"os"

	"github.com/sickbay-dev/sickbay/pkg/policy"
)

// PolicyPlace says where the policy is.
type PolicyPlace struct {
	PolicyNamespace string `split_words:"true" form:"name" desc:"Namespace of the ConfigMap sickbay-policy (docs/policy.md). Empty: the Pod's own, else the kubeconfig's. Where there is none, what these variables say holds."`
}

// Governing is what the services' variables say of what the policy may say.
type Governing struct {
	Policy
	Incidents
	Budgets
	Probes
}

// Probes says with what devices are proven healthy.
type Probes struct {
	ProbePlace
	ProbeImage string `split_words:"true" form:"image" desc:"Image of Sickbay for the Pods that have a device while it is proven healthy, and for its probe and canary where the policy names no other (docs/recovery.md). Empty: none, and nothing is proven."`
}

// ProbePlace says where devices are proven healthy.
type ProbePlace struct {
	ProbeNamespace string `split_words:"true" form:"name" desc:"Namespace of the claims and Pods by which devices are proven healthy before they are given back (docs/recovery.md). What is in there never counts as a holder of a device. Empty: nothing is proven, and devices that are quarantined stay out."`
}

// Base is what holds where a policy says nothing.
func (g Governing) Base(r Reporting) policy.Base {
	held := g.Quarantine()
	held.Recover = g.ProbeNamespace != "" && g.ProbeImage != ""
	return policy.Base{Quarantine: held, Incidents: g.Storms(), Limits: g.Limits(), Delays: r.ReportingDelay, ProbeImage: g.ProbeImage, Set: isSet}
}

func isSet(variable string) bool {
	_, set := os.LookupEnv(variable)
	return set
}

// Governed is the configuration of `sickbay policy show` and `sickbay policy explain`.
type Governed struct {
	Kubernetes
	PolicyPlace
	Reporting
	Governing
}

func (g *Governed) check() []error { return g.Policy.check() }

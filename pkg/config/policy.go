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
}

// Base is what holds where a policy says nothing.
func (g Governing) Base(r Reporting) policy.Base {
	return policy.Base{Quarantine: g.Quarantine(), Incidents: g.Storms(), Limits: g.Limits(), Delays: r.ReportingDelay, Set: isSet}
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

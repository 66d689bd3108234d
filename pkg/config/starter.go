package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Starter is the configuration of `sickbay starter`.
type Starter struct {
	Service
	Settle         time.Duration   `split_words:"true" default:"5s" min:"0s" max:"10m" desc:"How long the starter only watches after it started or listed anew, before it compares and signals."`
	Resync         time.Duration   `split_words:"true" default:"30s" min:"1s" max:"1h" desc:"How often it compares everything that it knows, so that nothing that was missed stays missed."`
	QueueWorkers   int             `split_words:"true" default:"8" min:"1" max:"256" desc:"Signals to Temporal under way at once."`
	LeaderElection LeaderElection  `split_words:"true"`
	UnknownPolicy  UnknownPolicies `split_words:"true" desc:"What an Unknown means, by driver. auto: a fault only where the driver reported a health before; ignore: never; fault: always. Drivers not named are auto."`
}

func (s *Starter) check() []error {
	return append(s.Temporal.check(), s.Reasons.check()...)
}

// LeaderElection says by which Lease one of several starters is the active one.
type LeaderElection struct {
	Namespace string `split_words:"true" form:"name" desc:"Namespace of the Lease by which one of several starters is the active one. Empty: the Pod's own, else the kubeconfig's."`
	Name      string `split_words:"true" default:"sickbay-starter" form:"name" desc:"Name of that Lease."`
}

// UnknownPolicies maps a driver (or, on the device-plugin path, a resource name)
// to what its Unknown means.
type UnknownPolicies map[string]string

func unknownChoices() []string { return []string{"auto", "ignore", "fault"} }

func (UnknownPolicies) allowed() string {
	return "a list like gpu.example.com=ignore,nic.example.com=fault, each " + oneOf(unknownChoices())
}

// Decode reads the list. envconfig calls it.
func (p *UnknownPolicies) Decode(text string) error {
	policies := UnknownPolicies{}
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		driver, policy, _ := strings.Cut(entry, "=")
		driver, policy = strings.TrimSpace(driver), strings.TrimSpace(policy)
		if _, twice := policies[driver]; twice {
			return fmt.Errorf("%s stands twice", driver)
		}
		if driver == "" || !slices.Contains(unknownChoices(), policy) {
			return fmt.Errorf("%q isn't driver=policy", entry)
		}
		policies[driver] = policy
	}
	*p = policies
	return nil
}

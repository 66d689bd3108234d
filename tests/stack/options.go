package stack

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Options say which parts a stack has and how they are set up. The zero value
// is a stack with nothing in it.
type Options struct {
	// Kubernetes is the version of the control plane: "1.36" or "1.37".
	// Empty runs none.
	Kubernetes string
	// NoTaintRules serves no DeviceTaintRule API, as a 1.36 cluster does unless
	// its operator switched the beta API on. A cluster that serves it and does
	// not act on it is FeatureGates: {"DRADeviceTaintRules": false}.
	NoTaintRules bool
	// FeatureGates are set on every Kubernetes part, over the stack's own
	// choice: see featureGates.
	FeatureGates map[string]bool
	// APIServerFlags, SchedulerFlags and ControllerManagerFlags are appended to
	// the part's command line; of a flag given twice the later one counts.
	APIServerFlags         []string
	SchedulerFlags         []string
	ControllerManagerFlags []string

	// Provokes is set by a test that has Sickbay's accounts refused on purpose. What
	// they ask of this stack isn't written for CallsVariable.
	Provokes bool

	// Temporal runs the Temporal server and its UI.
	Temporal bool
	// TemporalNamespace is created before the server starts. Default "sickbay".
	TemporalNamespace string
	// NoTemporalNamespace creates none: for what creates it through the API.
	NoTemporalNamespace bool
	// TemporalPostgreSQL keeps Temporal's data in a PostgreSQL server, and not in an
	// SQLite file. It implies NoTemporalNamespace.
	TemporalPostgreSQL bool
	// TemporalClientCertificates lets nobody talk to Temporal without a certificate
	// from TemporalCertificate, TemporalKeys nobody without a key from TemporalKey.
	// Both serve TLS, with a certificate of TemporalCA, and no UI.
	TemporalClientCertificates, TemporalKeys bool
	// SearchAttributes are the namespace's custom search attributes, name to
	// type ("Keyword", "Text", "Int", "Double", "Bool", "Datetime",
	// "KeywordList"). They are fixed when the store is made.
	SearchAttributes map[string]string
	// DynamicConfig holds Temporal settings without constraints, for example
	// "limit.numPendingActivities.error": 5. See also SetDynamicConfig.
	DynamicConfig map[string]any
	// TemporalLogLevel is the server's log level. Default "warn".
	TemporalLogLevel string

	// Redis runs a redis-server with an append-only file.
	Redis bool

	// Collector runs a receiver of OpenTelemetry's traces and metrics.
	Collector bool

	// Dir keeps the data, logs and certificates. Empty makes a temporary
	// directory that Stop removes; a given one is kept, and a second stack on
	// it finds the data of the first. Keep it short (socket paths).
	Dir string
	// Logf receives one line for each part that became ready. Start sets it to
	// the test's Logf.
	Logf func(format string, args ...any)
	// Progress receives the progress of builds. Default os.Stderr, because a
	// build may take minutes and a test's own log shows only at its end.
	Progress io.Writer
}

// release is one supported Kubernetes version.
type release struct {
	minor   string // "1.36", what callers ask for
	version string // "1.36.3", what is built
}

// releases are the Kubernetes versions that can be built, oldest first; each
// has a module tests/parts/kube-<version>.
func releases() []release {
	return []release{
		{minor: "1.36", version: "1.36.3"},
		{minor: "1.37", version: "1.37.2"},
	}
}

// Versions are the Kubernetes versions that Options.Kubernetes accepts, for
// tests that run on each.
func Versions() []string {
	var minors []string
	for _, r := range releases() {
		minors = append(minors, r.minor)
	}
	return minors
}

// releaseFor finds a release by "1.36" or by "1.36.3".
func releaseFor(kubernetes string) (release, error) {
	for _, r := range releases() {
		if kubernetes == r.minor || strings.TrimPrefix(kubernetes, "v") == r.version {
			return r, nil
		}
	}
	return release{}, fmt.Errorf("no Kubernetes %q in the stack; there is %s", kubernetes, strings.Join(Versions(), " and "))
}

// featureGates are the gates of every Kubernetes part.
//
// 1.36 has DeviceTaintRule as a beta API that is off by default, and both
// versions have KEP-5517 as alpha; everything else that Sickbay reads is on by
// default. (k8s.io/kubernetes pkg/features/kube_features.go of both versions.)
func (o Options) featureGates(r release) map[string]bool {
	gates := map[string]bool{"DRANodeAllocatableResources": true}
	switch r.minor {
	case "1.36":
		gates["DRADeviceTaintRules"] = !o.NoTaintRules
		gates["DRAResourcePoolStatus"] = true
	default:
		if o.NoTaintRules {
			gates["DRADeviceTaintRules"] = false
		}
	}
	for gate, on := range o.FeatureGates {
		gates[gate] = on
	}
	return gates
}

// runtimeConfig switches on the API versions that are not served by default, and
// the taint API off. Which resources are served does not depend on the gates: a
// cluster can serve DeviceTaintRules that its scheduler ignores (both versions,
// pkg/registry/resource/rest/storage_resource.go).
func (o Options) runtimeConfig(r release) []string {
	var config []string
	if r.minor == "1.36" {
		config = append(config, "resource.k8s.io/v1beta1=true", "resource.k8s.io/v1alpha3=true")
		if !o.NoTaintRules {
			return append(config, "resource.k8s.io/v1beta2=true")
		}
	}
	if o.NoTaintRules {
		for _, version := range []string{"v1alpha3", "v1beta2", "v1"} {
			if version == "v1" && r.minor == "1.36" {
				continue // 1.36 has no such version of it
			}
			config = append(config, "resource.k8s.io/"+version+"/devicetaintrules=false")
		}
	}
	return config
}

// gateFlag renders gates for --feature-gates, in a fixed order.
func gateFlag(gates map[string]bool) string {
	var list []string
	for gate, on := range gates {
		list = append(list, fmt.Sprintf("%s=%t", gate, on))
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

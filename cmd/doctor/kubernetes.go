package doctor

// This file looks at the API server: its version, what it serves, its gates.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Cluster is the API server that is asked, with the rights of whoever asks.
type Cluster struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
}

// The minor versions of Kubernetes 1 that Sickbay is tested with.
const (
	oldestMinor = 36
	newestMinor = 37
)

// Reach asks for the API server's version.
func (c Cluster) Reach() Check {
	name := "kubernetes/version"
	return Check{Name: name, Ask: func(ctx context.Context) ([]Finding, error) {
		needed := fmt.Sprintf("1.%d to 1.%d", oldestMinor, newestMinor)
		var info version.Info
		answer, err := raw(c.Kubernetes.CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx))
		if err == nil {
			err = json.Unmarshal(answer, &info)
		}
		if err != nil {
			if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
				return []Finding{{
					Check: name, State: Missing, Found: fmt.Sprintf("the API server lets this caller ask nothing: %v", err), Needed: needed,
					Without: "nothing works, and nothing else of Kubernetes was looked at",
					Remedy:  "Renew the token or the certificate of the kubeconfig, or see that the Pod's ServiceAccount is still there.",
					stops:   true,
				}}, nil
			}
			return []Finding{{
				Check: name, State: Missing, Found: fmt.Sprintf("the API server doesn't answer: %v", err), Needed: needed,
				Without: "nothing works, and nothing else of Kubernetes was looked at",
				Remedy:  "See that the kubeconfig, or the Pod's ServiceAccount, leads to an API server that runs.",
				stops:   true,
			}}, nil
		}
		return []Finding{judgeVersion(name, needed, info.GitVersion)}, nil
	}}
}

func judgeVersion(name, needed, found string) Finding {
	f := Finding{Check: name, State: OK, Found: found, Needed: needed}
	v, err := utilversion.ParseGeneric(found)
	switch {
	case err != nil || v.Major() != 1:
		f.State, f.Without = Unknown, "nobody knows whether Sickbay reads it rightly"
		f.Remedy = "Compare it with the versions that this Sickbay was tested with."
	case v.Minor() < oldestMinor:
		f.State, f.Without = Missing, "health of DRA devices isn't in Pod status by default, and other fields are missing"
		f.Remedy = fmt.Sprintf("Upgrade the control plane and the nodes to 1.%d or later.", oldestMinor)
	case v.Minor() > newestMinor:
		f.State, f.Without = Degraded, "nothing is known of what changed since"
		f.Remedy = "Look for a Sickbay that was tested with it; keep SICKBAY_MODE=observe until then."
	}
	return f
}

// raw is an answer as it came. Only Error reads what a refusal says.
func raw(answer rest.Result) ([]byte, error) {
	if err := answer.Error(); err != nil {
		return nil, err
	}
	return answer.Raw()
}

// resourceV1 is the API that devices, claims and their allocations are in.
const resourceV1 = "resource.k8s.io/v1"

// ResourceAPI asks whether the API of devices is served.
func (c Cluster) ResourceAPI() Check {
	name := "kubernetes/resource-api"
	return Check{Name: name, Lost: "whether DRA devices can be seen", Ask: func(context.Context) ([]Finding, error) {
		f := Finding{Check: name, State: OK, Needed: "resourceslices and resourceclaims of " + resourceV1}
		list, err := c.Kubernetes.Discovery().ServerResourcesForGroupVersion(resourceV1)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		var served []string
		if err == nil {
			for _, r := range list.APIResources {
				if slices.Contains([]string{"resourceslices", "resourceclaims", "deviceclasses"}, r.Name) {
					served = append(served, r.Name)
				}
			}
		}
		f.Found = "served: " + names(served)
		if !slices.Contains(served, "resourceslices") || !slices.Contains(served, "resourceclaims") {
			if len(served) == 0 {
				f.Found = resourceV1 + " isn't served"
			}
			f.State, f.Without = Missing, "starters wait for it, and see no device at all"
			f.Remedy = "Serve it: take resource.k8s.io/v1=false out of the API server's --runtime-config, and don't switch off its gate DynamicResourceAllocation."
		}
		return []Finding{f}, nil
	}}
}

// howToServeRules says how to have DeviceTaintRules served and obeyed.
const howToServeRules = "In 1.36: --feature-gates=DRADeviceTaintRules=true for API server, scheduler and controller manager, and " +
	"--runtime-config=resource.k8s.io/v1beta2=true for the API server. From 1.37 on it is on unless it was switched off."

// TaintRules asks whether single DRA devices can be kept out.
func (c Cluster) TaintRules() Check {
	name := "kubernetes/taint-rules"
	return Check{Name: name, Lost: "whether DRA devices can be kept out", Ask: func(ctx context.Context) ([]Finding, error) {
		f := Finding{Check: name, State: OK, Needed: "devicetaintrules of " + resourceV1 + " or v1beta2"}
		found, err := kube.Discover(ctx, c.Kubernetes.Discovery())
		if err != nil {
			return nil, err
		}
		if found.CanMark() {
			f.Found = "served: " + found.TaintRules.GroupVersion().String()
			return []Finding{f}, nil
		}
		f.State, f.Found = Degraded, "no DeviceTaintRule API is served"
		f.Without = "no DRA device can be kept out; cases are advisory: they record, wait and alert"
		f.Remedy = howToServeRules
		return []Finding{f}, nil
	}}
}

// gate is a feature gate of the API server that Sickbay depends on.
type gate struct {
	name    string
	state   State // what its absence comes to
	without string
}

func gates() []gate {
	return []gate{
		{"ResourceHealthStatus", Missing, "no Pod's status says how its devices are: the one source of health is missing"},
		{"ResourceHealthStatusMessage", Degraded, "no fault has a message: each is UnhealthyWithoutMessage, and Xids aren't told apart"},
		{"DynamicResourceAllocation", Missing, "there are no DRA devices"},
		{"DRADeviceTaints", Degraded, "taints that drivers set on their own devices are dropped"},
		{"DRADeviceTaintRules", Degraded, "no DRA device can be kept out; cases are advisory"},
	}
}

var gateLine = regexp.MustCompile(`^kubernetes_feature_enabled\{name="([^"]+)",stage="[^"]*"\} ([01])`)

// Gates reads the API server's own word on its feature gates. Those of scheduler,
// controller manager and kubelets are theirs alone; Probe and Kubelets find out by
// behaviour.
func (c Cluster) Gates() Check {
	name := "kubernetes/gates"
	return Check{Name: name, Lost: "which feature gates the API server has", Ask: func(ctx context.Context) ([]Finding, error) {
		text, err := raw(c.Kubernetes.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx))
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return []Finding{{
				Check: name, State: Unknown, Found: err.Error(), Needed: "the metric kubernetes_feature_enabled of the API server",
				Without: "which feature gates the API server has isn't known",
				Remedy:  "Run it as somebody who may get the path /metrics (nonResourceURLs), or compare the API server's --feature-gates.",
			}}, nil
		}
		if err != nil {
			return nil, err
		}
		return judgeGates(name, readGates(text)), nil
	}}
}

func readGates(metrics []byte) map[string]bool {
	found := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := gateLine.FindSubmatch(lines.Bytes()); m != nil {
			found[string(m[1])] = string(m[2]) == "1"
		}
	}
	return found
}

func judgeGates(name string, found map[string]bool) []Finding {
	var off []Finding
	var on []string
	for _, g := range gates() {
		state, there := found[g.name]
		if state {
			on = append(on, g.name)
			continue
		}
		f := Finding{Check: name + "/" + g.name, State: g.state, Found: "off", Needed: "on", Without: g.without}
		f.Remedy = "Set --feature-gates=" + g.name + "=true on API server, scheduler, controller manager and kubelets."
		if g.name == "DRADeviceTaintRules" {
			f.Remedy = howToServeRules
		}
		if !there {
			f.Found, f.State = "the API server doesn't know it", g.state
		}
		off = append(off, f)
	}
	if len(on) == 0 {
		return off
	}
	return append([]Finding{{Check: name, State: OK, Found: "on: " + strings.Join(on, ", "), Needed: "on"}}, off...)
}

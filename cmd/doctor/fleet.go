package doctor

// This file looks at what the fleet's drivers, plugins and tenants do: what is
// known of health, what can be kept out, and who passes a mark.

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Drivers asks of which drivers health is known.
func (c Cluster) Drivers() Check {
	name := "kubernetes/health"
	return Check{Name: name, Lost: "which drivers report health", Ask: func(ctx context.Context) ([]Finding, error) {
		read, err := listing.Read(ctx, listing.Clients{Kubernetes: c.Kubernetes, Dynamic: c.Dynamic, Discovery: c.Kubernetes.Discovery()})
		if err != nil {
			return nil, err
		}
		if len(read.Problems) > 0 {
			return nil, fmt.Errorf("not everything can be read: %s", strings.Join(read.Problems, "; "))
		}
		all := listing.Join(read, nil, time.Now())
		return append(judgeHealth(name, all), judgeUnseen("kubernetes/unseen", all)), nil
	}}
}

// reported counts the devices in use of one driver.
type reported struct {
	known, unknown, silent int
	// nodes are those of the devices that nothing is said of.
	nodes []string
}

func judgeHealth(name string, l listing.Listing) []Finding {
	drivers := map[string]*reported{}
	for _, d := range l.Devices {
		if len(d.Holders) == 0 || d.Key.Driver == probeDriver {
			continue
		}
		// Health of a device plugin's devices is in use as soon as it is reported; a
		// kubelet writes it for each.
		driver := cmp.Or(d.Key.Driver, d.Key.Resource)
		if drivers[driver] == nil {
			drivers[driver] = &reported{}
		}
		r := drivers[driver]
		health := d.Health
		if d.Stale != device.Fresh {
			health = device.Healthy // that it isn't believed now says nothing of who reports
		}
		switch health {
		case device.Healthy, device.Unhealthy:
			r.known++
		case device.Unknown:
			r.unknown++
		default:
			r.silent++
			r.nodes = append(r.nodes, d.Node)
		}
	}
	const needed = "a Healthy or Unhealthy from each driver"
	if len(drivers) == 0 {
		return []Finding{{Check: name, State: OK, Found: "no device is in use: nothing to judge by", Needed: needed}}
	}
	var findings []Finding
	for _, driver := range slices.Sorted(maps.Keys(drivers)) {
		r := drivers[driver]
		f := Finding{
			Check: name + "/" + driver, State: OK, Needed: needed,
			Found: fmt.Sprintf("%d of %d in use are Healthy or Unhealthy", r.known, r.known+r.unknown+r.silent),
		}
		switch {
		case r.silent > 0:
			f.State = Degraded
			f.Found = fmt.Sprintf("nothing at all is said of %d in use, on nodes %s", r.silent, names(r.nodes))
			f.Without = "no fault of theirs is seen"
			f.Remedy = "Switch the gate ResourceHealthStatus on for the kubelets there, unless those Pods began within the last minute or get their devices as DRA-backed extended resources, for which kubelets write no health."
		case r.known == 0:
			f.State = Degraded
			f.Found = fmt.Sprintf("all %d in use are Unknown", r.unknown)
			f.Without = "no fault of theirs is seen; an Unknown opens no case where health was never known"
			f.Remedy = "If the driver has no health service (DRAResourceHealth of kubelet's plugin API), look for a version that has; else see why it is silent. SICKBAY_UNKNOWN_POLICY says what its Unknown means."
		}
		findings = append(findings, f)
	}
	return findings
}

// judgeUnseen says how many DRA devices nobody reports on. That is how it is without watch
// Pods, which are an option, so it is never called a lack.
func judgeUnseen(name string, l listing.Listing) Finding {
	f := Finding{Check: name, State: OK, Needed: "nothing; with watch Pods (docs/watch.md) devices that nobody holds are seen too"}
	all, unseen := 0, 0
	var nodes []string
	for _, d := range l.Devices {
		if d.Path != device.PathDRA || !d.Listed || d.Key.Driver == probeDriver {
			continue
		}
		if all++; d.Health == "" && len(d.Holders) == 0 {
			unseen++
			nodes = append(nodes, d.Node)
		}
	}
	f.Found = fmt.Sprintf("of %d DRA devices none is unseen", all)
	if unseen > 0 {
		f.Found = fmt.Sprintf("of %d DRA devices %d are unseen: nobody holds them, so no fault of theirs shows; on nodes %s", all, unseen, names(nodes))
	}
	return f
}

// Plugins asks for resources of device plugins, whose devices can't be kept out.
func (c Cluster) Plugins() Check {
	name := "kubernetes/device-plugins"
	return Check{Name: name, Lost: "which resources are device plugins'", Ask: func(ctx context.Context) ([]Finding, error) {
		var nodes []*corev1.Node
		err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Kubernetes.CoreV1().Nodes().List(ctx, o)
		}).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			if node, ok := o.(*corev1.Node); ok {
				nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Status: corev1.NodeStatus{Capacity: node.Status.Capacity}})
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		return judgePlugins(name, nodes), nil
	}}
}

func judgePlugins(name string, nodes []*corev1.Node) []Finding {
	const needed = "devices that can be kept out one by one (DRA)"
	devices, on := map[string]int64{}, map[string]int{}
	for _, node := range nodes {
		for resource, offer := range kube.OffersOf(node) {
			if offer.Listed == 0 {
				continue // its plugin is gone
			}
			devices[resource] += offer.Listed
			on[resource]++
		}
	}
	if len(devices) == 0 {
		return []Finding{{Check: name, State: OK, Found: "none", Needed: needed}}
	}
	var findings []Finding
	for _, resource := range slices.Sorted(maps.Keys(devices)) {
		findings = append(findings, Finding{
			Check: name + "/" + resource, State: Degraded, Needed: needed,
			Found:   fmt.Sprintf("devices of a device plugin: %d, on nodes: %d", devices[resource], on[resource]),
			Without: "cases of these devices are advisory: they record, wait and alert, and keep nothing out",
			Remedy:  "Use the vendor's DRA driver where there is one; docs/operating.md says what can be done without.",
		})
	}
	return findings
}

// Tolerations asks for claims that pass a mark.
func (c Cluster) Tolerations() Check {
	name := "kubernetes/tolerations"
	return Check{Name: name, Lost: "which claims pass a mark", Ask: func(ctx context.Context) ([]Finding, error) {
		var passing []string
		err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Kubernetes.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, o)
		}).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			if claim, ok := o.(*resourcev1.ResourceClaim); ok && passes(claim.Spec.Devices.Requests) {
				passing = append(passing, "claim "+claim.Namespace+"/"+claim.Name)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list the ResourceClaims: %w", err)
		}
		f := Finding{Check: name}
		err = pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Kubernetes.ResourceV1().ResourceClaimTemplates(metav1.NamespaceAll).List(ctx, o)
		}).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			if template, ok := o.(*resourcev1.ResourceClaimTemplate); ok && passes(template.Spec.Spec.Devices.Requests) {
				passing = append(passing, "template "+template.Namespace+"/"+template.Name)
			}
			return nil
		})
		switch {
		case apierrors.IsForbidden(err) && len(passing) == 0:
			f.State, f.Found, f.Needed = Unknown, "none among the claims; "+err.Error(), toleratesNothing
			f.Without, f.Remedy = "which templates make claims that pass a mark isn't known", "Give whoever asks the right to list resourceclaimtemplates."
			return []Finding{f}, nil
		case apierrors.IsForbidden(err): // what was found says enough
		case err != nil:
			return nil, fmt.Errorf("list the ResourceClaimTemplates: %w", err)
		}
		return []Finding{judgeTolerations(name, passing)}, nil
	}}
}

const toleratesNothing = "no claim that tolerates every taint, or ours"

func judgeTolerations(name string, passing []string) Finding {
	f := Finding{Check: name, State: OK, Needed: toleratesNothing}
	if len(passing) == 0 {
		f.Found = "none among the claims and templates"
		return f
	}
	f.State = Degraded
	f.Found = fmt.Sprintf("%d pass a mark: %s", len(passing), names(passing))
	f.Without = "their Pods are given quarantined devices"
	f.Remedy = "Have their owners tolerate only the keys that they mean; an admission policy can refuse tolerations without a key."
	return f
}

// passes tells whether a request tolerates a mark: every taint, or ours whatever its
// epoch. One with the epoch of a case is a probe's.
func passes(requests []resourcev1.DeviceRequest) bool {
	tolerates := func(all []resourcev1.DeviceToleration) bool {
		return slices.ContainsFunc(all, func(t resourcev1.DeviceToleration) bool {
			return t.Operator == resourcev1.DeviceTolerationOpExists && (t.Key == "" || t.Key == kube.TaintKey) &&
				(t.Effect == "" || t.Effect == resourcev1.DeviceTaintEffectNoSchedule)
		})
	}
	for _, request := range requests {
		// One with admin access, a watch Pod's, is given nothing that others then lack.
		if e := request.Exactly; e != nil && (e.AdminAccess == nil || !*e.AdminAccess) && tolerates(e.Tolerations) {
			return true
		}
		for _, alternative := range request.FirstAvailable {
			if tolerates(alternative.Tolerations) {
				return true
			}
		}
	}
	return false
}

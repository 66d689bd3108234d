package listing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/spelling"
)

// PodStory is what is known of one Pod's devices. Its JSON form is part of the
// command line's interface.
type PodStory struct {
	At      time.Time `json:"at"`
	Summary string    `json:"summary"`
	Next    string    `json:"next"`
	Pod     PodStatus `json:"pod"`
	// Ended is set when the Pod succeeded or failed: what its status still says of
	// devices is frozen, and it is left out.
	Ended bool `json:"ended,omitempty"`
	// Devices has one element per container and device, and one for each device
	// that the Pod holds and no container reports on.
	Devices []PodDevice `json:"devices"`
	// Unmapped holds the entries that lead to no one device, healthy ones too.
	Unmapped []device.Unmapped `json:"unmapped"`
	// Blind says what Sickbay itself can\'t see now.
	Blind    []string `json:"blind,omitempty"`
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// PodDevice is a device as one container's status tells of it.
type PodDevice struct {
	Container string `json:"container,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// Health is what this container's status says; empty where it says nothing.
	Health  device.Health `json:"health,omitempty"`
	Message string        `json:"message,omitempty"`
	// Frozen marks what a terminated container's entry last said.
	Frozen bool `json:"frozen,omitempty"`
	// Monitor marks a device that the Pod shares by admin access, or tries for Sickbay,
	// and doesn't hold.
	Monitor bool `json:"monitor,omitempty"`
	// Device is what is known of the device from all sources.
	Device Device `json:"device"`
}

// PodDevices are the devices that a Pod has or may be about: what has to be asked
// of Temporal before TellPod. The error says that it has none, and which Pods of
// its namespace have some.
func PodDevices(cluster Cluster, pod PodStatus) ([]device.Key, error) {
	view, _ := findPod(cluster, pod)
	var keys []device.Key
	seen, unmapped := device.Observe(view, lookup(cluster.Claims))
	for _, o := range seen {
		keys = append(keys, o.Device)
	}
	for _, held := range heldByClaim(cluster.Claims, pod.UID) {
		keys = append(keys, held.key)
	}
	if len(keys) == 0 && len(unmapped) == 0 {
		return nil, withoutDevices(cluster, view, pod)
	}
	slices.SortFunc(keys, device.Key.Compare)
	return slices.Compact(keys), nil
}

// TellPod puts together what is known of a Pod's devices. It is deterministic.
func TellPod(pod PodStatus, from Sources, now time.Time) PodStory {
	j, listing := join(from.Cluster, from.Cases, now)
	told := PodStory{
		At: now, Pod: pod, Devices: []PodDevice{}, Unmapped: []device.Unmapped{},
		Problems: slices.Concat(listing.Problems, from.Problems), Notes: listing.Notes,
	}
	known := map[device.Key]Device{}
	for _, d := range listing.Devices {
		known[d.Key] = d
	}
	view, _ := findPod(from.Cluster, pod)
	told.Ended = view.Terminal
	seen, unmapped := device.Observe(view, lookup(from.Cluster.Claims))
	told.Unmapped = append(told.Unmapped, unmapped...)
	reported := map[device.Key]bool{}
	for _, o := range seen {
		reported[o.Device] = true
		d, ok := known[o.Device]
		if !ok {
			d = Device{Name: o.Device.String(), Path: o.Device.Path(), Key: o.Device, Node: o.Node}
		}
		told.Devices = append(told.Devices, PodDevice{
			Container: o.Container, Claim: o.Claim, Health: o.Health, Message: o.Message, Frozen: o.Frozen, Monitor: o.Monitor, Device: d,
		})
	}
	for _, held := range heldByClaim(from.Cluster.Claims, pod.UID) {
		if !reported[held.key] {
			told.Devices = append(told.Devices, PodDevice{Claim: held.claim, Monitor: held.monitor, Device: *j.device(held.key)})
		}
	}
	slices.SortStableFunc(told.Devices, func(a, b PodDevice) int {
		return cmp.Or(strings.Compare(a.Device.Name, b.Device.Name), strings.Compare(a.Container, b.Container))
	})
	told.Summary = podSummary(told)
	told.Next = podNext(steps(told, from), told.Unmapped)
	return told
}

// steps are the next steps of the Pod's faulty devices, each named once.
func steps(told PodStory, from Sources) []string {
	var all []string
	done := map[device.Key]bool{}
	for _, e := range told.Devices {
		if done[e.Device.Key] || !e.Device.Faulty() {
			continue
		}
		done[e.Device.Key] = true
		of := Story{At: told.At, Device: e.Device}
		for _, c := range from.Cases {
			if c.State != nil && c.State.Case.Device == e.Device.Key && c.State.Case.Open() {
				of.Case = &c.State.Case
			}
		}
		all = append(all, e.Device.Name+": "+next(of, from.CasesMissing))
	}
	return all
}

func findPod(cluster Cluster, pod PodStatus) (device.Pod, bool) {
	for _, p := range cluster.Pods {
		if p.Ref.UID == pod.UID {
			return p, true
		}
	}
	return device.Pod{}, false
}

func lookup(claims []device.Claim) device.ClaimLookup {
	byName := map[[2]string]device.Claim{}
	for _, claim := range claims {
		byName[[2]string{claim.Namespace, claim.Name}] = claim
	}
	return func(namespace, name string) (device.Claim, bool) {
		claim, ok := byName[[2]string{namespace, name}]
		return claim, ok
	}
}

type heldDevice struct {
	key     device.Key
	claim   string
	monitor bool
}

func heldByClaim(claims []device.Claim, uid string) []heldDevice {
	var held []heldDevice
	for _, claim := range claims {
		if !slices.ContainsFunc(claim.ReservedFor, func(p device.PodRef) bool { return p.UID == uid }) {
			continue
		}
		for _, result := range claim.Results {
			held = append(held, heldDevice{key: result.Device, claim: claim.Name, monitor: !result.Holds()})
		}
	}
	return held
}

// withoutDevices says why a Pod has no devices, as far as it can be told.
func withoutDevices(cluster Cluster, view device.Pod, pod PodStatus) error {
	why := "it has no ResourceClaim, and its status has no health entry"
	switch {
	case view.Terminal:
		why = "it has ended, and given back what it had"
	case view.Node == "" && len(view.Claims) > 0:
		why = "it isn't scheduled yet; kubectl describe pod says why"
	case len(view.Claims) > 0:
		why = "its claims have no device allocated, and its status has no health entry"
	}
	remedy := "see `sickbay devices` for who holds what"
	if others := podsWithDevices(cluster, pod.Namespace); len(others) > 0 {
		remedy = fmt.Sprintf("Pods with devices in %s: %s", pod.Namespace, alternatives(others, mostNamed))
	}
	return &notFound{fmt.Sprintf("Pod %s has no devices: %s; %s", pod, why, remedy)}
}

// PodsWithDevices names all Pods that have devices, as namespace/name, sorted.
func PodsWithDevices(cluster Cluster) []string {
	var all []string
	namespaces := map[string]bool{}
	for _, p := range cluster.Pods {
		namespaces[p.Ref.Namespace] = true
	}
	for namespace := range namespaces {
		for _, name := range podsWithDevices(cluster, namespace) {
			all = append(all, namespace+"/"+name)
		}
	}
	slices.Sort(all)
	return all
}

// podsWithDevices names the Pods of a namespace that have devices, sorted.
func podsWithDevices(cluster Cluster, namespace string) []string {
	names := map[string]bool{}
	for _, claim := range cluster.Claims {
		for _, p := range claim.ReservedFor {
			if claim.Namespace == namespace && len(claim.Results) > 0 {
				names[p.Name] = true
			}
		}
	}
	for _, p := range cluster.Pods {
		if p.Ref.Namespace != namespace || p.Terminal {
			continue
		}
		for _, c := range p.Containers {
			if len(c.Entries) > 0 {
				names[p.Ref.Name] = true
			}
		}
	}
	all := make([]string, 0, len(names))
	for name := range names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// NoPod is the error for a Pod that isn't there.
func NoPod(cluster Cluster, namespace, name string) error {
	var here []string
	for _, p := range cluster.Pods {
		if p.Ref.Namespace == namespace {
			here = append(here, p.Ref.Name)
		}
	}
	slices.Sort(here)
	text := fmt.Sprintf("there is no Pod %s/%s", namespace, name)
	near := spelling.Near(name, here, mostNamed)
	others := podsWithDevices(cluster, namespace)
	var elsewhere []string
	for _, p := range cluster.Pods {
		if p.Ref.Name == name {
			elsewhere = append(elsewhere, p.Ref.String())
		}
	}
	slices.Sort(elsewhere)
	switch {
	case len(elsewhere) > 0:
		text += "; did you mean " + alternatives(elsewhere, mostNamed) + "?"
	case len(near) > 0:
		text += "; did you mean " + alternatives(near, mostNamed) + "?"
	case len(others) > 0:
		text += fmt.Sprintf("; Pods with devices in %s: %s", namespace, alternatives(others, mostNamed))
	case len(here) == 0:
		text += fmt.Sprintf("; namespace %s has no Pods at all", namespace)
	}
	return &notFound{text}
}

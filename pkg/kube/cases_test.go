package kube

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// objects reads the documents of one file of testdata/cases that are of a kind,
// in their order.
func objects[T any](t *testing.T, file, kind string) []T {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "cases", file))
	if err != nil {
		t.Fatal(err)
	}
	var found []T
	for _, document := range bytes.Split(content, []byte("\n---\n")) {
		var head struct{ Kind string }
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if head.Kind != kind {
			continue
		}
		var object T
		if err := yaml.UnmarshalStrict(document, &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found = append(found, object)
	}
	if len(found) == 0 {
		t.Fatalf("%s holds no %s", file, kind)
	}
	return found
}

var gpu3 = device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3"}

// O1, O2. Case 06, its three rows as the Pod that says them: the slash in the
// pool's name, the CDI ID that leads through the claim, and the plugin's ID.
func TestTheMixedPodIsReadAsItsKubeletWroteIt(t *testing.T) {
	pod := PodView(&objects[corev1.Pod](t, "06-pod-status-mixed-ids.yaml", "Pod")[0])
	claims := func(namespace, name string) (device.Claim, bool) {
		cores := device.Key{Driver: "dra.cpu", Pool: "anvil-07", Device: "cpudevnuma000"}
		return device.Claim{Namespace: namespace, Name: name, Results: []device.Allocated{{Request: "cpus", Device: cores}}}, name == "train-0-cores"
	}
	seen, unmapped := device.Observe(pod, claims)
	var got []string
	for _, o := range seen {
		got = append(got, fmt.Sprintf("%s %s %s", o.Container, o.Device, o.Health))
	}
	want := []string{
		"sidecar anvil-07|example.com/nic|nic-0000:3b:00.0 Unhealthy",
		"trainer dra.cpu/anvil-07/cpudevnuma000 Healthy",
		"trainer gpu.example.com/rack4/anvil-07/gpu-3 Healthy",
	}
	if !slices.Equal(got, want) || len(unmapped) != 0 {
		t.Errorf("read %q, unmapped %v; want %q", got, unmapped, want)
	}
}

// O5. Case 07, rows t=0, t=1 and t=8 on a live look: the restartable init container
// counts, each Pod has its own word, and both Pods of the claim's reservedFor hold
// the device.
func TestALookAtASharedDeviceFindsBothItsHolders(t *testing.T) {
	const file = "07-shared-claim-two-pods.yaml"
	pods := objects[corev1.Pod](t, file, "Pod")
	claim := ClaimView(&objects[resourcev1.ResourceClaim](t, file, "ResourceClaim")[0])
	look := func() quarantine.Looked {
		return looking{key: gpu3, claims: []device.Claim{claim}, pods: []device.Pod{PodView(&pods[0]), PodView(&pods[1])}}.answer()
	}
	holders := func(looked quarantine.Looked) string {
		var names []string
		for _, h := range looked.Holders {
			names = append(names, h.Pod.Name+" by "+h.Claim)
		}
		return strings.Join(names, ", ")
	}
	const both = "serve-a by shared-gpu, serve-b by shared-gpu"
	looked := look()
	if got := told(looked); !slices.Equal(got, []string{"serve-a Unhealthy fault", "serve-b Healthy"}) || holders(looked) != both {
		t.Errorf("t=1: heard %q, held by %s", got, holders(looked))
	}
	pods[1].Status.ContainerStatuses[0].AllocatedResourcesStatus[0].Resources[0].Health = corev1.ResourceHealthStatusUnhealthy
	looked = look()
	if got := told(looked); !slices.Equal(got, []string{"serve-a Unhealthy fault", "serve-b Unhealthy fault"}) || holders(looked) != both {
		t.Errorf("t=8: heard %q, held by %s", got, holders(looked))
	}
	// Only the sidecar still has an entry.
	pods[0].Status.ContainerStatuses = nil
	if got := told(look()); !slices.Equal(got, []string{"serve-a Unhealthy fault", "serve-b Unhealthy fault"}) {
		t.Errorf("by the sidecar alone: heard %q", got)
	}
}

// O8. Case 12, rows t=0 and t=160 on a live look: gpu-3 is missing from the
// complete newer generation, the other seven are listed, and the claim that has
// gpu-3 allocated goes on naming its holder.
func TestAMissingDevicesClaimStaysInSight(t *testing.T) {
	versions := objects[resourcev1.ResourceSlice](t, "12-slices-device-missing.yaml", "ResourceSlice")
	claim := device.Claim{
		Namespace: "team-kestrel", Name: "train-0-gpu", Results: []device.Allocated{{Request: "gpu", Device: gpu3}},
		ReservedFor: []device.PodRef{{Namespace: "team-kestrel", Name: "train-0", UID: "uid-train-0"}},
	}
	for at, version := range map[int]resourcev1.ResourceSlice{0: versions[0], 160: versions[1]} {
		for i := range 8 {
			key := gpu3
			key.Device = fmt.Sprintf("gpu-%d", i)
			looked := looking{key: key, slices: []device.Slice{SliceView(&version)}, claims: []device.Claim{claim}}.answer()
			if looked.Presence == nil {
				t.Fatalf("t=%d: a complete pool says nothing of %s", at, key)
			}
			gone := at == 160 && key == gpu3
			if looked.Presence.Present == gone || gone && looked.Presence.Missing != device.MissingFromPool {
				t.Errorf("t=%d: %s: %+v", at, key, *looked.Presence)
			}
			if held := len(looked.Holders) == 1 && looked.Holders[0].Claim == claim.Name; held != (key == gpu3) {
				t.Errorf("t=%d: %s is held by %v", at, key, looked.Holders)
			}
		}
	}
}

// Case 35, its three rows: a Pod that has its device through plain limits is a
// holder by its claim's reservedFor, whatever its spec, its status and its
// existence say, and none once reservedFor is empty.
func TestAPodWithAnExtendedResourceIsAHolder(t *testing.T) {
	const file = "35-extended-resource-pod.yaml"
	pod := objects[corev1.Pod](t, file, "Pod")[0]
	claim := ClaimView(&objects[resourcev1.ResourceClaim](t, file, "ResourceClaim")[0])
	if len(pod.Spec.ResourceClaims) != 0 {
		t.Fatal("the Pod's spec has claims")
	}
	held := func(pods ...device.Pod) bool {
		looked := looking{key: gpu3, claims: []device.Claim{claim}, pods: pods}.answer()
		return len(looked.Holders) == 1 && looked.Holders[0].Pod.Name == "legacy-1" && looked.Holders[0].Claim == "legacy-1-extended-resources-x7k2p"
	}
	unsaid := pod.DeepCopy()
	unsaid.Status.ContainerStatuses, unsaid.Status.ExtendedResourceClaimStatus = nil, nil
	for when, pods := range map[string][]device.Pod{
		"t=0, its status says nothing":  {PodView(unsaid)},
		"t=5, its status names a fault": {PodView(&pod)},
		"its Pod isn't there any more":  {},
	} {
		if !held(pods...) {
			t.Errorf("%s: it is no holder", when)
		}
	}
	looked := looking{key: gpu3, claims: []device.Claim{claim}, pods: []device.Pod{PodView(&pod)}}.answer()
	if got := told(looked); !slices.Equal(got, []string{"legacy-1 Unhealthy fault"}) {
		t.Errorf("t=5: heard %q", got)
	}
	claim.ReservedFor = nil
	if held(PodView(&pod)) {
		t.Error("it holds the device although its claim is reserved for nobody")
	}
}

// Q1, Q5. Case 33, an empty selector evicts every device user in the cluster
// (kubernetes/kubernetes#141422, PR #141425; kyverno/policies PR #1525): a mark names
// its device by driver, pool and device, evicts nobody, and none is made for a device
// that isn't named so far.
func TestAMarkNamesOneDeviceOrIsNotMade(t *testing.T) {
	ask := func(key device.Key) quarantine.PutMark {
		return quarantine.PutMark{
			Device: key, Epoch: 17, Revision: 1, Reason: reason.Builtin().Match(key.Driver, "XID 79"),
			Severity: reason.SeverityFatal, Actor: "sickbay", Since: time.UnixMilli(17), Until: time.UnixMilli(18),
		}
	}
	for what, key := range map[string]device.Key{
		"nothing is named": {}, "the driver is missing": {Pool: "anvil-07", Device: "gpu-3"},
		"the pool is missing": {Driver: "gpu.example.com", Device: "gpu-3"}, "the device is missing": {Driver: "gpu.example.com", Pool: "anvil-07"},
		"a template was left unfilled":       {Driver: "gpu.example.com", Pool: "{{ .Pool }}", Device: "gpu-3"},
		"a blank device":                     {Driver: "gpu.example.com", Pool: "anvil-07", Device: " "},
		"a device plugin's device":           {Node: "anvil-07", Resource: "example.com/gpu", ID: "GPU-3"},
		"a device of both kinds":             {Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3", Node: "anvil-07", Resource: "example.com/gpu", ID: "GPU-3"},
		"a driver's name that could be many": {Driver: "*", Pool: "anvil-07", Device: "gpu-3"},
	} {
		if mark, err := NewMark(ask(key)); err == nil {
			t.Errorf("%s: made %+v", what, mark.Spec)
		}
	}
	mark, err := NewMark(ask(gpu3))
	if err != nil {
		t.Fatal(err)
	}
	s, taint := mark.Spec.DeviceSelector, mark.Spec.Taint
	if s == nil || !same(s.Driver, gpu3.Driver) || !same(s.Pool, gpu3.Pool) || !same(s.Device, gpu3.Device) {
		t.Errorf("selector %+v", s)
	}
	if taint.Effect != resourcev1.DeviceTaintEffectNoSchedule || taint.Value != "17" {
		t.Errorf("taint %+v; want one of this epoch that evicts nobody", taint)
	}
}

// Case 33, row t=0: each rule of the report is told by whom it selects, and none of
// them passes for a mark of Sickbay's, not even under its label and name.
func TestRulesThatSelectMoreThanOneDeviceAreTold(t *testing.T) {
	rules := objects[map[string]any](t, "33-taint-rules.yaml", "DeviceTaintRule")
	want := []struct {
		selects string
		wide    bool
	}{
		{"one pool or device", false}, {"every device of the cluster", true}, {"no device", false}, {"device gpu-3 of every pool", true},
	}
	if len(rules) != len(want) {
		t.Fatalf("%d rules, want %d", len(rules), len(want))
	}
	for i, content := range rules {
		rule := &unstructured.Unstructured{Object: content}
		name := rule.GetName()
		if selects, wide := Selects(rule); selects != want[i].selects || wide != want[i].wide {
			t.Errorf("%s selects %s, wide %t; want %s, %t", name, selects, wide, want[i].selects, want[i].wide)
		}
		if _, ours := ReadMark(rule); ours {
			t.Errorf("%s passes for a mark", name)
		}
		rule.SetName(MarkName(gpu3))
		rule.SetLabels(map[string]string{ManagedByLabel: ManagedBy})
		rule.SetAnnotations(map[string]string{AnnotationDevice: gpu3.String()})
		if mark, ours := ReadMark(rule); !ours || mark.Intact {
			t.Errorf("%s under a mark's name: ours %t, intact %t; want it recognised as changed", name, ours, mark.Intact)
		}
	}
}

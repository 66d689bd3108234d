package device_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// told writes observations down in one line each.
func told(observations []device.Observation) []string {
	lines := []string{}
	for _, o := range observations {
		line := fmt.Sprintf("%s %s %s", o.Container, o.Device, o.Health)
		if o.Message != "" {
			line += " (" + o.Message + ")"
		}
		if o.Frozen {
			line += " frozen"
		}
		if o.Monitor {
			line += " admin"
		}
		lines = append(lines, line)
	}
	return lines
}

func toldUnmapped(unmapped []device.Unmapped) []string {
	lines := []string{}
	for _, u := range unmapped {
		line := fmt.Sprintf("%s %s %s %s: %s", u.Container, u.Entry, u.ID, u.Health, u.Reason)
		if len(u.Candidates) > 0 {
			line += fmt.Sprint(" ", u.Candidates)
		}
		lines = append(lines, line)
	}
	return lines
}

// O1, O2. What real kubelets wrote (1.36.3 and 1.37.2) leads to the right
// devices, on both paths.
func TestWhatRealKubeletsWroteLeadsToTheRightDevices(t *testing.T) {
	tests := map[string]struct {
		file string
		// want has one list per Pod.
		want     [][]string
		unmapped []string
	}{
		"a DRA device named by the kubelet, with and without the request": {"dra-healthy",
			[][]string{{"byreq dra.example.com/vm/gpu-0 Healthy", "main dra.example.com/vm/gpu-0 Healthy"}}, nil},
		"an Unhealthy with its message": {"dra-unhealthy",
			[][]string{{"byreq dra.example.com/vm/gpu-0 Unhealthy (XID 79: GPU has fallen off the bus)", "main dra.example.com/vm/gpu-0 Unhealthy (XID 79: GPU has fallen off the bus)"}}, nil},
		"a driver that was silent too long": {"dra-timeout",
			[][]string{{"byreq dra.example.com/vm/gpu-0 Unknown", "main dra.example.com/vm/gpu-0 Unknown"}}, nil},
		"a driver that was killed": {"dra-driver-killed",
			[][]string{{"byreq dra.example.com/vm/gpu-0 Unknown", "main dra.example.com/vm/gpu-0 Unknown"}}, nil},
		"a Pod that failed says nothing any more": {"dra-crashed",
			[][]string{{}}, nil},
		"a crash-looping container between two runs still speaks for its DRA device": {"dra-crashloop",
			[][]string{{"main dra.example.com/vm/gpu-0 Unhealthy (xid48)"}}, nil},
		"a CDI ID that looks like a device is resolved through the claim": {"dra-cdi-device",
			[][]string{{"byreq dra.example.com/vm/gpu-0 Healthy", "main dra.example.com/vm/gpu-0 Healthy"}}, nil},
		"the same on containerd 2": {"dra-cdi-containerd2",
			[][]string{{"byreq dra.example.com/vm/gpu-0 Healthy", "main dra.example.com/vm/gpu-0 Healthy"}}, nil},
		"two Pods that share a claim speak of one device": {"dra-shared-claim",
			[][]string{{"main dra.example.com/vm/gpu-1 Unhealthy (xid)"}, {"main dra.example.com/vm/gpu-1 Unhealthy (xid)"}}, nil},
		"Kubernetes 1.37 behind a CDI ID": {"dra-unhealthy-137",
			[][]string{{"byreq dra.example.com/vm/gpu-0 Unhealthy (XID 79)", "main dra.example.com/vm/gpu-0 Unhealthy (XID 79)"}}, nil},
		"a DRA-backed extended resource, for which the kubelet writes nothing": {"extended-resource-137",
			[][]string{{}}, nil},
		"a watch Pod sees held and unheld devices and holds none": {"watch-all",
			[][]string{{"main dra.example.com/vm/gpu-0 Unhealthy (ecc) admin", "main dra.example.com/vm/gpu-1 Healthy admin", "main dra.example.com/vm/gpu-2 Unhealthy (xid79) admin"}}, nil},
		"a watch Pod behind claim-named CDI IDs that disagree is no guess": {"watch-all-cdi",
			[][]string{{}}, []string{
				"main claim:x dra.example.com/claim=25cf63a4-c8c6-4269-b566-eebc551d1c73-gpu-0 Healthy: SeveralDevices [dra.example.com/vm/gpu-0 dra.example.com/vm/gpu-1 dra.example.com/vm/gpu-2]",
				"main claim:x dra.example.com/claim=25cf63a4-c8c6-4269-b566-eebc551d1c73-gpu-1 Healthy: SeveralDevices [dra.example.com/vm/gpu-0 dra.example.com/vm/gpu-1 dra.example.com/vm/gpu-2]",
				"main claim:x dra.example.com/claim=25cf63a4-c8c6-4269-b566-eebc551d1c73-gpu-2 Unhealthy: SeveralDevices [dra.example.com/vm/gpu-0 dra.example.com/vm/gpu-1 dra.example.com/vm/gpu-2]"}},
		"one request per device tells them apart again": {"watch-per-request-cdi",
			[][]string{{"main dra.example.com/vm/gpu-0 Healthy admin", "main dra.example.com/vm/gpu-1 Healthy admin", "main dra.example.com/vm/gpu-2 Unhealthy (unheld-bad) admin"}}, nil},
		"a device plugin's IDs belong to the node": {"plugin-unhealthy",
			[][]string{{"side vm|fake.example.com/gpu|GPU-0 Healthy", "main vm|fake.example.com/gpu|GPU-1 Unhealthy"}}, nil},
		"a device that the plugin lists no more looks Healthy": {"plugin-removed",
			[][]string{{"side vm|fake.example.com/gpu|GPU-0 Healthy", "main vm|fake.example.com/gpu|GPU-1 Healthy"}}, nil},
		"a failed Pod's frozen device-plugin entry says nothing any more": {"plugin-crashed",
			[][]string{{}}, nil},
		"a device plugin on Kubernetes 1.37": {"plugin-unhealthy-137",
			[][]string{{"side vm|fake.example.com/gpu|GPU-0 Healthy", "main vm|fake.example.com/gpu|GPU-1 Unhealthy"}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := load(t, "captures/"+test.file)
			if len(s.Pods) != len(test.want) {
				t.Fatalf("%d Pods, want %d", len(s.Pods), len(test.want))
			}
			for i, pod := range s.Pods {
				seen, unmapped := device.Observe(pod, s.lookup)
				if got := told(seen); !slices.Equal(got, test.want[i]) {
					t.Errorf("%s:\ngot  %s\nwant %s", pod.Ref, strings.Join(got, "\n     "), strings.Join(test.want[i], "\n     "))
				}
				if got := toldUnmapped(unmapped); !slices.Equal(got, append([]string{}, test.unmapped...)) {
					t.Errorf("%s unmapped:\ngot  %s\nwant %s", pod.Ref, strings.Join(got, "\n     "), strings.Join(test.unmapped, "\n     "))
				}
				for _, o := range seen {
					if o.Pod != pod.Ref || o.Node != pod.Node || o.ResourceVersion != pod.ResourceVersion {
						t.Errorf("%s: the observation is of %s on %s at %s", pod.Ref, o.Pod, o.Node, o.ResourceVersion)
					}
				}
			}
		})
	}
}

// O1, O2. Every shape of name and ID, and what makes it lead nowhere. Cases 06
// and 35 have the origins.
func TestEveryShapeOfAnEntryIsResolvedOrShownAsUnmapped(t *testing.T) {
	gpu := func(request, name string) device.Allocated {
		return device.Allocated{Request: request, Device: dra(t, "gpu.example.com/rack4/anvil-07/"+name)}
	}
	admin := func(a device.Allocated) device.Allocated { a.AdminAccess = true; return a }
	claim := func(results ...device.Allocated) device.Claim {
		return device.Claim{Namespace: "team-kestrel", Name: "train-0-gpus", Results: results}
	}
	const healthy, unknown, unhealthy = device.Healthy, device.Unknown, device.Unhealthy
	one := []device.Entry{{Name: "claim:gpus", ResourceID: "vendor.example.com/claim=uid-a", Health: unhealthy, Message: "xid79"}}
	tests := map[string]struct {
		claim    device.Claim
		entries  []device.Entry
		want     []string
		unmapped []string
	}{
		"driver before the first slash, device after the last": {
			claim(gpu("primary", "gpu-3")), []device.Entry{{Name: "claim:gpus/primary", ResourceID: "gpu.example.com/rack4/anvil-07/gpu-3", Health: healthy}},
			[]string{"main gpu.example.com/rack4/anvil-07/gpu-3 Healthy"}, nil},
		"a CDI ID of a claim with one device": {
			claim(gpu("primary", "gpu-3")), one, []string{"main gpu.example.com/rack4/anvil-07/gpu-3 Unhealthy (xid79)"}, nil},
		"a prioritised list's choice is found by the main request": {
			claim(gpu("primary/big", "gpu-3"), gpu("other", "gpu-4")), []device.Entry{{Name: "claim:gpus/primary", ResourceID: "v.example.com/claim=x", Health: unhealthy}},
			[]string{"main gpu.example.com/rack4/anvil-07/gpu-3 Unhealthy"}, nil},
		"a prioritised list's choice is found by its own name": {
			claim(gpu("primary/big", "gpu-3"), gpu("primary/small", "gpu-4")), []device.Entry{{Name: "claim:gpus/primary/small", ResourceID: "v.example.com/claim=x", Health: unhealthy}},
			[]string{"main gpu.example.com/rack4/anvil-07/gpu-4 Unhealthy"}, nil},
		"a request isn't found by the beginning of its name": {
			claim(gpu("primary", "gpu-3")), []device.Entry{{Name: "claim:gpus/prim", ResourceID: "v.example.com/claim=x", Health: unhealthy}},
			nil, []string{"main claim:gpus/prim v.example.com/claim=x Unhealthy: RequestUnknown"}},
		"several devices with one common health are all meant": {
			claim(gpu("all", "gpu-4"), gpu("all", "gpu-3")), []device.Entry{
				{Name: "claim:gpus", ResourceID: "v.example.com/claim=b", Health: unhealthy, Message: "xid 48"},
				{Name: "claim:gpus", ResourceID: "v.example.com/claim=a", Health: unhealthy, Message: "xid 48"}},
			[]string{"main gpu.example.com/rack4/anvil-07/gpu-3 Unhealthy (xid 48)", "main gpu.example.com/rack4/anvil-07/gpu-4 Unhealthy (xid 48)"}, nil},
		"several faults with different messages are no guess: one may be the application's": {
			claim(gpu("all", "gpu-4"), gpu("all", "gpu-3")), []device.Entry{
				{Name: "claim:gpus", ResourceID: "v.example.com/claim=b", Health: unhealthy, Message: "xid 31"},
				{Name: "claim:gpus", ResourceID: "v.example.com/claim=a", Health: unhealthy, Message: "xid 79"}},
			nil, []string{
				"main claim:gpus v.example.com/claim=a Unhealthy: SeveralDevices [gpu.example.com/rack4/anvil-07/gpu-3 gpu.example.com/rack4/anvil-07/gpu-4]",
				"main claim:gpus v.example.com/claim=b Unhealthy: SeveralDevices [gpu.example.com/rack4/anvil-07/gpu-3 gpu.example.com/rack4/anvil-07/gpu-4]"}},
		"a device that the claim doesn't have is nobody's to speak of": {
			claim(gpu("all", "gpu-3")), []device.Entry{
				{Name: "claim:gpus", ResourceID: "gpu.example.com/anvil-08/gpu-0", Health: unhealthy, Message: "xid 79"}},
			nil, []string{"main claim:gpus gpu.example.com/anvil-08/gpu-0 Unhealthy: NotInClaim [gpu.example.com/rack4/anvil-07/gpu-3]"}},
		"several devices that disagree are no guess": {
			claim(gpu("all", "gpu-4"), gpu("all", "gpu-3")), []device.Entry{
				{Name: "claim:gpus", ResourceID: "v.example.com/claim=b", Health: unhealthy},
				{Name: "claim:gpus", ResourceID: "v.example.com/claim=a", Health: healthy}},
			nil, []string{
				"main claim:gpus v.example.com/claim=a Healthy: SeveralDevices [gpu.example.com/rack4/anvil-07/gpu-3 gpu.example.com/rack4/anvil-07/gpu-4]",
				"main claim:gpus v.example.com/claim=b Unhealthy: SeveralDevices [gpu.example.com/rack4/anvil-07/gpu-3 gpu.example.com/rack4/anvil-07/gpu-4]"}},
		"one entry for several devices is no guess": {
			claim(gpu("all", "gpu-4"), gpu("all", "gpu-3")), one, nil,
			[]string{"main claim:gpus vendor.example.com/claim=uid-a Unhealthy: SeveralDevices [gpu.example.com/rack4/anvil-07/gpu-3 gpu.example.com/rack4/anvil-07/gpu-4]"}},
		"devices that the kubelet named narrow what is left": {
			claim(gpu("all", "gpu-3"), gpu("all", "gpu-4")), []device.Entry{
				{Name: "claim:gpus", ResourceID: "gpu.example.com/rack4/anvil-07/gpu-3", Health: healthy},
				{Name: "claim:gpus", ResourceID: "v.example.com/claim=a", Health: unhealthy}},
			[]string{"main gpu.example.com/rack4/anvil-07/gpu-3 Healthy", "main gpu.example.com/rack4/anvil-07/gpu-4 Unhealthy"}, nil},
		"a device named by the kubelet counts though the claim is gone": {
			device.Claim{}, []device.Entry{{Name: "claim:gpus", ResourceID: "gpu.example.com/rack4/anvil-07/gpu-3", Health: unhealthy}},
			[]string{"main gpu.example.com/rack4/anvil-07/gpu-3 Unhealthy"}, nil},
		"a CDI ID whose claim was deleted": {
			device.Claim{}, one, nil, []string{"main claim:gpus vendor.example.com/claim=uid-a Unhealthy: ClaimUnknown"}},
		"a CDI ID whose claim lost its allocation": {
			claim(), one, nil, []string{"main claim:gpus vendor.example.com/claim=uid-a Unhealthy: ClaimNotAllocated"}},
		"a claim that the Pod doesn't have": {
			claim(gpu("primary", "gpu-3")), []device.Entry{{Name: "claim:others", ResourceID: "v.example.com/claim=x", Health: unhealthy}},
			nil, []string{"main claim:others v.example.com/claim=x Unhealthy: ClaimUnknown"}},
		"a claim of the Pod that isn't generated yet": {
			claim(gpu("primary", "gpu-3")), []device.Entry{{Name: "claim:later", ResourceID: "v.example.com/claim=x", Health: unknown}},
			nil, []string{"main claim:later v.example.com/claim=x Unknown: ClaimUnknown"}},
		"an extended resource's claim under its generated name": {
			device.Claim{Namespace: "team-kestrel", Name: "train-0-extended-resources-x7k2p", Results: []device.Allocated{gpu("container-0-request-0", "gpu-3")}},
			[]device.Entry{{Name: "claim:train-0-extended-resources-x7k2p/container-0-request-0", ResourceID: "v.example.com/claim=x", Health: unhealthy}},
			[]string{"main gpu.example.com/rack4/anvil-07/gpu-3 Unhealthy"}, nil},
		"an admin claim is marked as one, however often it names the device": {
			claim(admin(gpu("a", "gpu-3")), admin(gpu("b", "gpu-3"))), []device.Entry{
				{Name: "claim:gpus", ResourceID: "gpu.example.com/rack4/anvil-07/gpu-3", Health: healthy},
				{Name: "claim:gpus", ResourceID: "gpu.example.com/rack4/anvil-07/gpu-3", Health: healthy}},
			[]string{"main gpu.example.com/rack4/anvil-07/gpu-3 Healthy admin"}, nil},
		"an admin claim behind a CDI ID": {
			claim(admin(gpu("a", "gpu-3"))), one, []string{"main gpu.example.com/rack4/anvil-07/gpu-3 Unhealthy (xid79) admin"}, nil},
		"an empty ID": {
			claim(gpu("primary", "gpu-3")), []device.Entry{{Name: "claim:gpus", Health: unhealthy}, {Name: "example.com/nic", Health: unhealthy}},
			nil, []string{"main claim:gpus  Unhealthy: EmptyID", "main example.com/nic  Unhealthy: EmptyID"}},
		"an empty claim name": {
			claim(gpu("primary", "gpu-3")), []device.Entry{{Name: "claim:", ResourceID: "x", Health: unhealthy}},
			nil, []string{"main claim: x Unhealthy: MalformedName"}},
		"a name that is neither a resource nor a claim": {
			claim(gpu("primary", "gpu-3")), []device.Entry{{Name: "", ResourceID: "x", Health: unhealthy}, {Name: "gpu", ResourceID: "x", Health: unhealthy}, {Name: "example.com/a/b", ResourceID: "x", Health: unhealthy}},
			nil, []string{"main  x Unhealthy: MalformedName", "main example.com/a/b x Unhealthy: MalformedName", "main gpu x Unhealthy: MalformedName"}},
		"a device plugin's ID is taken as it is, slashes and all": {
			device.Claim{}, []device.Entry{{Name: "example.com/nic", ResourceID: "nic/0000:3b:00.0|x", Health: unhealthy}},
			[]string{"main anvil-07|example.com/nic|nic/0000:3b:00.0|x Unhealthy"}, nil},
		"what doesn't lead to a device is shown once": {
			device.Claim{}, append(slices.Clone(one), one...), nil, []string{"main claim:gpus vendor.example.com/claim=uid-a Unhealthy: ClaimUnknown"}},
		"no entries": {claim(gpu("primary", "gpu-3")), nil, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := device.Pod{
				Ref: device.PodRef{Namespace: "team-kestrel", Name: "train-0", UID: "u"}, Node: "anvil-07", ResourceVersion: "1",
				Claims:        []device.PodClaim{{Name: "gpus", Claim: "train-0-gpus"}, {Name: "later"}},
				ExtendedClaim: "train-0-extended-resources-x7k2p",
				Containers:    []device.Container{{Name: "main", Entries: test.entries}},
			}
			seen, unmapped := device.Observe(pod, claims(test.claim))
			if got := told(seen); !slices.Equal(got, append([]string{}, test.want...)) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			if got := toldUnmapped(unmapped); !slices.Equal(got, append([]string{}, test.unmapped...)) {
				t.Errorf("unmapped\ngot  %q\nwant %q", got, test.unmapped)
			}
		})
	}
}

// O1. Entries count only while they say something of now.
func TestPodsThatSayNothingOfNowAreNotRead(t *testing.T) {
	entry := []device.Entry{{Name: "example.com/gpu", ResourceID: "GPU-1", Health: device.Unhealthy}, {Name: "claim:g", ResourceID: "gpu.example.com/anvil-07/gpu-3", Health: device.Unhealthy}}
	base := device.Pod{Ref: device.PodRef{Namespace: "n", Name: "p", UID: "u"}, Node: "anvil-07", ResourceVersion: "1"}
	tests := map[string]struct {
		change func(*device.Pod)
		want   []string
	}{
		"a Pod without a node has no devices yet": {func(p *device.Pod) { p.Node = "" }, []string{}},
		"a Pod that is over is history":           {func(p *device.Pod) { p.Terminal = true }, []string{}},
		"a stopped container's device-plugin entry is frozen, its DRA entry isn't": {func(p *device.Pod) { p.Containers[0].Terminated = true },
			[]string{"main anvil-07|example.com/gpu|GPU-1 Unhealthy frozen", "main gpu.example.com/anvil-07/gpu-3 Unhealthy"}},
		"a running one's count": {func(*device.Pod) {}, []string{"main anvil-07|example.com/gpu|GPU-1 Unhealthy", "main gpu.example.com/anvil-07/gpu-3 Unhealthy"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := base
			pod.Containers = []device.Container{{Name: "main", Entries: entry}}
			test.change(&pod)
			seen, unmapped := device.Observe(pod, claims())
			if got := told(seen); !slices.Equal(got, test.want) || len(unmapped) > 0 {
				t.Errorf("got %q and %v, want %q", got, unmapped, test.want)
			}
		})
	}
}

// O3. The kubelet writes DRA entries in random order. Property: whatever the
// order of containers, entries, claims and results, the same is read.
func TestTheOrderInWhichTheKubeletWroteChangesNothing(t *testing.T) {
	health := rapid.SampledFrom([]device.Health{device.Healthy, device.Unknown, device.Unhealthy})
	message := rapid.SampledFrom([]string{"", "xid 31", "xid 79", "ecc"})
	name := rapid.SampledFrom([]string{"claim:a", "claim:a/r1", "claim:b", "claim:b/r2", "claim:gone", "claim:", "example.com/gpu", "bad"})
	id := rapid.SampledFrom([]string{"", "d.example.com/p/gpu-0", "d.example.com/p/gpu-1", "d.example.com/p/q/gpu-2", "v.example.com/claim=x", "v.example.com/claim=y", "GPU-1"})
	request := rapid.SampledFrom([]string{"r1", "r2", "r1/sub"})
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.Custom(func(t *rapid.T) device.Entry {
			return device.Entry{Name: name.Draw(t, "name"), ResourceID: id.Draw(t, "id"), Health: health.Draw(t, "health"), Message: message.Draw(t, "message")}
		})
		result := rapid.Custom(func(t *rapid.T) device.Allocated {
			key := device.Key{Driver: "d.example.com", Pool: "p", Device: rapid.SampledFrom([]string{"gpu-0", "gpu-1", "gpu-2"}).Draw(t, "device")}
			return device.Allocated{Request: request.Draw(t, "request"), Device: key, AdminAccess: rapid.Bool().Draw(t, "admin")}
		})
		pod := device.Pod{
			Ref: device.PodRef{Namespace: "n", Name: "p", UID: "u"}, Node: "node", ResourceVersion: "7",
			Claims: []device.PodClaim{{Name: "a", Claim: "ca"}, {Name: "b", Claim: "cb"}},
		}
		for _, c := range []string{"one", "two", "three"} {
			pod.Containers = append(pod.Containers, device.Container{
				Name: c, Terminated: rapid.Bool().Draw(t, "terminated"), Entries: rapid.SliceOfN(entry, 0, 5).Draw(t, "entries"),
			})
		}
		all := []device.Claim{
			{Namespace: "n", Name: "ca", Results: rapid.SliceOfN(result, 0, 3).Draw(t, "a")},
			{Namespace: "n", Name: "cb", Results: rapid.SliceOfN(result, 0, 3).Draw(t, "b")},
		}
		seen, unmapped := device.Observe(pod, claims(all...))
		digest := device.Digest(seen, epoch)

		shuffled := pod
		shuffled.Containers = rapid.Permutation(pod.Containers).Draw(t, "containers")
		shuffled.Claims = rapid.Permutation(pod.Claims).Draw(t, "claims")
		for i := range shuffled.Containers {
			shuffled.Containers[i].Entries = rapid.Permutation(shuffled.Containers[i].Entries).Draw(t, "order")
		}
		for i := range all {
			all[i].Results = rapid.Permutation(all[i].Results).Draw(t, "results")
		}
		seenAgain, unmappedAgain := device.Observe(shuffled, claims(all...))
		if !slices.Equal(seen, seenAgain) {
			t.Fatalf("read     %q\nshuffled %q", told(seen), told(seenAgain))
		}
		if !reflect.DeepEqual(unmapped, unmappedAgain) {
			t.Fatalf("unmapped %q\nshuffled %q", toldUnmapped(unmapped), toldUnmapped(unmappedAgain))
		}
		if again := device.Digest(seenAgain, epoch); !slices.Equal(digest, again) {
			t.Fatalf("digest %v\nshuffled %v", digest, again)
		}
		for i := 1; i < len(digest); i++ {
			if digest[i-1].Device.Compare(digest[i].Device) >= 0 {
				t.Fatalf("one device twice, or out of order: %v", digest)
			}
		}
	})
}

// O2. Property: an entry is either read as some device or shown as unmapped, and
// an Unhealthy never disappears.
func TestNoUnhealthyEntryDisappears(t *testing.T) {
	name := rapid.OneOf(rapid.SampledFrom([]string{"claim:a", "claim:a/r", "claim:x", "example.com/gpu"}), rapid.String())
	id := rapid.OneOf(rapid.SampledFrom([]string{"d.example.com/p/gpu-0", "v.example.com/claim=x", ""}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		entry := device.Entry{Name: name.Draw(t, "name"), ResourceID: id.Draw(t, "id"), Health: device.Unhealthy}
		pod := device.Pod{
			Ref: device.PodRef{Namespace: "n", Name: "p", UID: "u"}, Node: "node", Claims: []device.PodClaim{{Name: "a", Claim: "ca"}},
			Containers: []device.Container{{Name: "c", Entries: []device.Entry{entry}}},
		}
		var results []device.Allocated
		for i := range rapid.IntRange(0, 2).Draw(t, "devices") {
			results = append(results, device.Allocated{Request: "r", Device: device.Key{Driver: "d.example.com", Pool: "p", Device: fmt.Sprint("gpu-", i)}})
		}
		seen, unmapped := device.Observe(pod, claims(device.Claim{Namespace: "n", Name: "ca", Results: results}))
		if len(seen)+len(unmapped) != 1 {
			t.Fatalf("%+v gave %q and %q", entry, told(seen), toldUnmapped(unmapped))
		}
		for _, o := range seen {
			if err := o.Device.Validate(); err != nil || o.Health != device.Unhealthy {
				t.Fatalf("%+v gave %+v: %v", entry, o, err)
			}
		}
	})
}

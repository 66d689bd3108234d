package listing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// fleet is devices that differ in everything one may ask for.
func fleet() Listing {
	at := func(minutes int) *time.Time { return moment(now.Add(-time.Duration(minutes) * time.Minute)) }
	dra := func(node, name string) Device {
		key := device.Key{Driver: "gpu.example.com", Pool: node, Device: name}
		return Device{Name: key.String(), Path: device.PathDRA, Key: key, Node: node, Listed: true, Classes: []string{"gpus"}}
	}
	sick, old, gone, lost, well := dra("rack1-a", "gpu-0"), dra("rack1-b", "gpu-0"), dra("rack2-a", "gpu-0"), dra("rack2-a", "gpu-1"), dra("rack2-b", "gpu-0")
	sick.Phase, sick.Reason, sick.Severity, sick.Since, sick.Health = quarantine.PhaseQuarantined, "XidFallenOffBus", "fatal", at(1), device.Unhealthy
	sick.Holders = []Holder{{Namespace: "a", Name: "one", UID: "1"}, {Namespace: "a", Name: "two", UID: "2"}}
	old.Phase, old.Reason, old.Severity, old.Since, old.Health = quarantine.PhaseSuspect, "HealthUnknown", "minor", at(60), device.Unknown
	gone.Phase, gone.Reason, gone.Severity, gone.Since = quarantine.PhaseGone, "DeviceMissing", "major", at(10)
	lost.Workflow = "device/gpu.example.com/rack2-a/gpu-1"
	well.Health, well.Classes = device.Healthy, []string{"gpus", "whole-gpus"}
	key := device.Key{Node: "rack3-a", Resource: "example.com/gpu", ID: "GPU-7"}
	plugin := Device{Name: key.String(), Path: device.PathPlugin, Key: key, Node: key.Node, Listed: true, Health: device.Healthy, Classes: []string{key.Resource}}
	return Listing{
		At: now, Devices: []Device{sick, old, gone, lost, well, plugin}, openClasses: []string{"odd-gpus"},
		Unmapped: []device.Unmapped{
			{Node: "rack1-a", Reason: device.SeveralDevices, Health: device.Unhealthy, Candidates: []device.Key{sick.Key}},
			{Node: "rack9-a", Reason: device.ClaimUnknown, Health: device.Unknown},
		},
	}
}

func short(l Listing) string {
	var names []string
	for _, d := range l.Devices {
		names = append(names, d.Node+":"+d.Key.Device+d.Key.ID)
	}
	return strings.Join(names, " ")
}

func TestEachFilterLeavesWhatWasAskedFor(t *testing.T) {
	all := short(fleet())
	for name, tc := range map[string]struct {
		filter   Filter
		want     string
		unmapped int
	}{
		"nothing":                  {Filter{}, all, 2},
		"one node":                 {Filter{Nodes: []string{"rack1-b"}}, "rack1-b:gpu-0", 0},
		"a rack":                   {Filter{Nodes: []string{"rack1-*"}}, "rack1-a:gpu-0 rack1-b:gpu-0", 1},
		"one node or another":      {Filter{Nodes: []string{"rack1-b", "rack2-b"}}, "rack1-b:gpu-0 rack2-b:gpu-0", 0},
		"a driver":                 {Filter{Drivers: []string{"gpu.example.com"}}, strings.TrimSuffix(all, " rack3-a:GPU-7"), 1},
		"a plugin's resource":      {Filter{Drivers: []string{"example.com/*"}}, "rack3-a:GPU-7", 0},
		"a phase in small letters": {Filter{Phases: []string{"quarantined"}}, "rack1-a:gpu-0", 2},
		"two phases":               {Filter{Phases: []string{"Suspect", "Gone"}}, "rack1-b:gpu-0 rack2-a:gpu-0", 2},
		"no case":                  {Filter{Phases: []string{NoCase}}, "rack2-b:gpu-0 rack3-a:GPU-7", 2},
		"a reason's family":        {Filter{Reasons: []string{"Xid*"}}, "rack1-a:gpu-0", 0},
		"a class":                  {Filter{Classes: []string{"whole-gpus"}}, "rack2-b:gpu-0", 2},
		"a resource as class":      {Filter{Classes: []string{"example.com/gpu"}}, "rack3-a:GPU-7", 2},
		"why an entry is unmapped": {Filter{Reasons: []string{"SeveralDevices"}}, "", 1},
		"all have to hold":         {Filter{Nodes: []string{"rack2-*"}, Phases: []string{"Gone"}, Faulty: true}, "rack2-a:gpu-0", 0},
		"faulty":                   {Filter{Faulty: true}, "rack1-a:gpu-0 rack1-b:gpu-0 rack2-a:gpu-0 rack2-a:gpu-1", 2},
	} {
		t.Run(name, func(t *testing.T) {
			narrowed, _ := fleet().Narrow(tc.filter)
			if got := short(narrowed); got != tc.want || len(narrowed.Unmapped) != tc.unmapped {
				t.Errorf("leaves %s and %d unmapped, want %s and %d", got, len(narrowed.Unmapped), tc.want, tc.unmapped)
			}
		})
	}
}

func TestAClassThatCannotBeJudgedIsSaidToBeWhenAskedFor(t *testing.T) {
	asked, _ := fleet().Narrow(Filter{Classes: []string{"odd-*"}})
	if len(asked.Notes) != 1 || !strings.Contains(asked.Notes[0], "DeviceClass odd-gpus demands more") {
		t.Errorf("notes %q, want one about odd-gpus", asked.Notes)
	}
	if other, _ := fleet().Narrow(Filter{Classes: []string{"gpus"}}); len(other.Notes) != 0 {
		t.Errorf("notes %q, want none: gpus can be judged", other.Notes)
	}
}

func TestOnlyWhoAsksForAClassLacksClassesThatCannotBeRead(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	cluster.NoClasses = "DeviceClasses can't be read"
	l := Join(cluster, nil, now)
	if plain, _ := l.Narrow(Filter{}); len(plain.Problems) != 0 {
		t.Errorf("problems %q of somebody who asked for no class", plain.Problems)
	}
	if asked, _ := l.Narrow(Filter{Classes: []string{"gpus"}}); !slices.Equal(asked.Problems, []string{cluster.NoClasses}) {
		t.Errorf("problems %q, want that classes can't be read", asked.Problems)
	}
}

func TestAnEmptyAnswerSaysWhatWasProbablyMistyped(t *testing.T) {
	for name, tc := range map[string]struct {
		filter Filter
		want   []string
	}{
		"a slip of the pen":    {Filter{Reasons: []string{"XidFalenOffBus"}}, []string{"no device has the reason XidFalenOffBus; did you mean XidFallenOffBus?"}},
		"nothing like it":      {Filter{Drivers: []string{"nic"}}, []string{"no device has the driver nic; there is example.com/gpu, gpu.example.com"}},
		"too many to name":     {Filter{Nodes: []string{"x"}}, []string{"no device has the node x; there is rack1-a, rack1-b, rack2-a, rack2-b, rack3-a"}},
		"what there is":        {Filter{Nodes: []string{"rack1-*"}, Classes: []string{"gpus"}}, nil},
		"two that there isn't": {Filter{Nodes: []string{"rack1-z"}, Classes: []string{"gpu"}}, []string{"no device has the node rack1-z; did you mean rack1-a or rack1-b?", "no device has the class gpu; did you mean gpus?"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fleet().Strange(tc.filter); !slices.Equal(got, tc.want) {
				t.Errorf("says %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAFilterOrAnOrderThatMeansNothingIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a phase":    {Filter{Phases: []string{"Suspekt"}}.Check(), `--phase "Suspekt": there is no such phase; did you mean Suspect?`},
		"any phase":  {Filter{Phases: []string{"ok"}}.Check(), `--phase "ok": there is no such phase; want one of Quarantined, Retired, Gone, Recovering, Restricted, Suspect, Released, None`},
		"a pattern":  {Filter{Nodes: []string{"[a"}}.Check(), `--node "[a" isn't a pattern: want a name, in which * stands for any letters and ? for one`},
		"an order":   {Order{By: "sinse"}.Check(), `--sort-by "sinse": did you mean since?`},
		"that is ok": {Filter{Phases: []string{"none"}, Nodes: []string{"rack?-*"}}.Check(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(tc.err); got != tc.want {
				t.Errorf("says %q, want %q", got, tc.want)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestTheWorstOrOldestComesFirst(t *testing.T) {
	for by, want := range map[string]string{
		"name":     "rack1-a:gpu-0 rack1-b:gpu-0 rack2-a:gpu-0 rack2-a:gpu-1 rack2-b:gpu-0 rack3-a:GPU-7",
		"phase":    "rack1-a:gpu-0 rack2-a:gpu-0 rack1-b:gpu-0 rack2-a:gpu-1 rack2-b:gpu-0 rack3-a:GPU-7",
		"health":   "rack1-a:gpu-0 rack1-b:gpu-0 rack2-b:gpu-0 rack3-a:GPU-7 rack2-a:gpu-0 rack2-a:gpu-1",
		"severity": "rack1-a:gpu-0 rack2-a:gpu-0 rack1-b:gpu-0 rack2-a:gpu-1 rack2-b:gpu-0 rack3-a:GPU-7",
		"since":    "rack1-b:gpu-0 rack2-a:gpu-0 rack1-a:gpu-0 rack2-a:gpu-1 rack2-b:gpu-0 rack3-a:GPU-7",
		"reason":   "rack2-a:gpu-0 rack1-b:gpu-0 rack1-a:gpu-0 rack2-a:gpu-1 rack2-b:gpu-0 rack3-a:GPU-7",
		"holders":  "rack1-a:gpu-0 rack1-b:gpu-0 rack2-a:gpu-0 rack2-a:gpu-1 rack2-b:gpu-0 rack3-a:GPU-7",
		"node":     "rack1-a:gpu-0 rack1-b:gpu-0 rack2-a:gpu-0 rack2-a:gpu-1 rack2-b:gpu-0 rack3-a:GPU-7",
	} {
		t.Run(by, func(t *testing.T) {
			l := fleet()
			slices.Reverse(l.Devices)
			if got := short(l.Sort(Order{By: by})); got != want {
				t.Errorf("sorted as\n%s, want\n%s", got, want)
			}
			backwards := strings.Fields(want)
			slices.Reverse(backwards)
			if got := short(l.Sort(Order{By: by, Reverse: true})); got != strings.Join(backwards, " ") {
				t.Errorf("reversed as %s", got)
			}
		})
	}
	for _, by := range Orders() {
		if err := (Order{By: by}).Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestCountsGoByPhaseTheGravestFirst(t *testing.T) {
	l := fleet()
	l.Blind, l.Problems, l.Notes = []string{"no starter leads"}, []string{"Nodes can't be read"}, []string{"no marks here"}
	got := l.Count()
	if !slices.Equal(got.Blind, l.Blind) || !slices.Equal(got.Problems, l.Problems) || !slices.Equal(got.Notes, l.Notes) {
		t.Errorf("of what the counts lack it says %+v", got)
	}
	want := []PhaseCount{{"Quarantined", 1}, {"Gone", 1}, {"Suspect", 1}, {"?", 1}, {"None", 2}}
	if got.Devices != 6 || got.Faulty != 4 || *got.Unmapped != 2 || !slices.Equal(got.Phases, want) {
		t.Errorf("counted %+v, want 6 devices, 4 faulty, 2 unmapped, %v", got, want)
	}
}

func TestADeviceBelongsToItsClassesHeldOrNot(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	cluster.Claims[0].Results[0].Class = "by-request"
	cluster.Slices[0].Devices[1].Attributes = map[string]string{"type": "mig"}
	cluster.Classes = []device.Class{
		device.ReadClass("gpus", []string{`device.driver == 'gpu.example.com'`}),
		device.ReadClass("migs", []string{`device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'mig'`}),
		device.ReadClass("nics", []string{`device.driver == 'nic.example.com'`}),
	}
	l := Join(cluster, nil, now)
	if got := find(t, l, gpu(t, "0").String()).Classes; !slices.Equal(got, []string{"by-request", "gpus"}) {
		t.Errorf("the held device is of %v, want by-request and gpus", got)
	}
	if got := find(t, l, gpu(t, "1").String()).Classes; !slices.Equal(got, []string{"gpus", "migs"}) {
		t.Errorf("the device that nobody has is of %v, want gpus and migs", got)
	}
}

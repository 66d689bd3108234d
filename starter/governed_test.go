package starter

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// policyBook stands where the policy's watch does.
type policyBook struct {
	version string
	says    map[string]string
}

func (b *policyBook) Saying() (any, func(string, []string) string) {
	says := b.says
	return b.version, func(driver string, classes []string) string { return says[driver] + says[fmt.Sprint(classes)] }
}

// The case of a device learns of a policy that says something else of it than before, and
// no other case does: it is told what it knows, once, and not before workers can have the
// policy. Devices that are well cost nothing.
func TestAChangedPolicyReachesTheCasesItIsAbout(t *testing.T) {
	s := newScene(t)
	s.slice("node-0", 1, listed("gpu-0", ""), listed("gpu-1", ""))
	s.report("train-0", gpu("node-0", "gpu-0"), device.Unhealthy, xid79)
	s.report("train-1", gpu("node-0", "gpu-1"), device.Healthy, "")
	s.report("train-2", replica("node-0", "id-7"), device.Unhealthy, "")
	s.tracker.claimSeen(device.Claim{Namespace: "team-kestrel", Name: "train-0-accel", UID: "claim-0", Results: []device.Allocated{
		{Request: "gpu", Device: gpu("node-0", "gpu-0"), Class: "a100"},
	}})
	if keys := opened(s.send()); len(keys) != 2 {
		t.Fatalf("opened %v, want two cases", keys)
	}
	book := &policyBook{version: "1", says: map[string]string{}}
	g := &governing{tracker: s.tracker, governed: book, settling: s.sender.settling, clock: s.clock, pace: flowcontrol.NewFakeAlwaysRateLimiter()}
	g.version, g.said = book.Saying()
	told := func() (keys []device.Key) {
		for range 6 {
			s.clock.Step(time.Second)
			g.round(t.Context())
			for _, c := range s.send() {
				if c.open {
					t.Errorf("%s: a case was opened by it", c.key)
				}
				keys = append(keys, c.key)
			}
		}
		return keys
	}
	change := func(version string, says map[string]string) { book.version, book.says = version, says }
	for _, step := range []struct {
		sentence string
		says     map[string]string
		want     []device.Key
	}{
		{"nothing changed that devices go by", map[string]string{}, nil},
		{"it says something of the driver", map[string]string{driver: "grace 1h"}, []device.Key{gpu("node-0", "gpu-0")}},
		{"it says something of a class as well", map[string]string{driver: "grace 1h", "[a100]": "observe"}, []device.Key{gpu("node-0", "gpu-0")}},
		{"it says something of another class", map[string]string{driver: "grace 1h", "[a100]": "observe", "[h100]": "observe"}, nil},
		{"it says something of a plugin's resource", map[string]string{driver: "grace 1h", "[a100]": "observe", plugin: "x"}, []device.Key{replica("node-0", "id-7")}},
	} {
		change(book.version+"1", step.says)
		g.round(t.Context())
		none(t, s.send(), "before workers can have it")
		if got := told(); !slices.Equal(got, step.want) {
			t.Errorf("%s: told %v, want %v", step.sentence, got, step.want)
		}
	}
	if got := told(); len(got) != 0 {
		t.Errorf("told again without a change: %v", got)
	}
	s.cases.end(gpu("node-0", "gpu-0"))
	s.report("train-0", gpu("node-0", "gpu-0"), device.Healthy, "")
	s.send()
	change("9", map[string]string{})
	if got := told(); slices.Contains(got, gpu("node-0", "gpu-0")) || slices.Contains(got, gpu("node-0", "gpu-1")) {
		t.Errorf("told %v of whom no case runs", got)
	}
}

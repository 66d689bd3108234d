package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// ofCaution are results of seeds in which sound devices were kept out for so many hours.
func ofCaution(name string, hours ...float64) result {
	r := result{policy: policy{name: name}}
	for _, h := range hours {
		m := measures{DeviceDays: 1000, Idle: time.Duration(h * float64(time.Hour))}
		r.seeds = append(r.seeds, m)
		r.all.add(m)
	}
	return r
}

func TestADifferenceThatIsSmallerThanItsSpreadIsNone(t *testing.T) {
	defaults := ofCaution("defaults", 90, 100, 110, 120)
	for what, test := range map[string]struct {
		other      result
		less, more bool
		text       string
	}{
		"less in every world, however worlds differ": {ofCaution("", 80, 91, 99, 110), true, false, "**−10.0** ± 1.3"},
		"more in every world":                        {ofCaution("", 100, 109, 121, 130), false, true, "+10.0 ± 1.3"},
		"now less, now more":                         {ofCaution("", 80, 115, 90, 125), false, false, "none (-2.5 ± 24.7)"},
		"surely less, and too little to matter":      {ofCaution("", 89.5, 99.5, 109.5, 119.5), false, false, "none (-0.5 ± 0.0)"},
		"the same":                                   {ofCaution("", 90, 100, 110, 120), false, false, "none"},
	} {
		e := usual().against(defaults, test.other)
		if e.less() != test.less || e.more() != test.more || e.asDifference() != test.text {
			t.Errorf("%s: less %t, more %t, %q; want %q", what, e.less(), e.more(), e.asDifference(), test.text)
		}
	}
}

func TestThePageTellsHowFarAPriceMayMoveBeforeAnotherPolicyWins(t *testing.T) {
	w := usual()
	defaults, careless := ofCaution("defaults", 20, 20), ofCaution("careless", 14, 14)
	careless.all.Stuck = time.Hour // of 2,000 device-days: 8 device-hours
	at, crosses := evenAt(defaults, careless)
	if !crosses || math.Abs(at-1.5) > 1e-9 {
		t.Errorf("even at %g, %t; want 1.5: 6 hours of caution for 4 of faults", at, crosses)
	}
	if _, crosses := evenAt(defaults, ofCaution("", 10, 10)); crosses {
		t.Error("what is better at one and no worse at the other is better at any price")
	}
	if !dominated(defaults, []result{defaults, ofCaution("", 10, 10)}) || dominated(careless, []result{defaults, careless}) || dominated(defaults, []result{defaults, careless}) {
		t.Error("a policy is left behind that is best in something, or one is kept that is best in nothing")
	}
	if got := w.cost(&careless.all); got != 18 {
		t.Errorf("careless costs %g, want 18", got)
	}
}

// What caution costs is what nobody works with: from a quarantine on, because its holder
// is to move, and from when its holder left where a device is only restricted.
func TestOnlyHoursInWhichNobodyWorksWithADeviceAreLostToCaution(t *testing.T) {
	for what, test := range map[string]struct {
		restricted, raised bool
		want               time.Duration
		moved              int
	}{
		"quarantined":                           {want: 5 * time.Hour, moved: 1},
		"restricted":                            {restricted: true, want: 2 * time.Hour},
		"restricted, quarantined an hour later": {restricted: true, raised: true, want: 4 * time.Hour, moved: 1},
	} {
		w := worldOf(t, defaults())
		u := w.units[0]
		u.pod, u.heldTill = "job", 3*time.Hour
		w.at(0, func() {
			w.got.marked(w, u, quarantine.PutMark{Restricted: test.restricted})
			u.mark = &quarantine.MarkFound{Name: u.name, Restricted: test.restricted}
		})
		w.at(time.Hour, func() {
			if test.raised {
				w.got.raised(w, u)
			}
		})
		w.at(5*time.Hour, func() { w.unmark(u) })
		w.runs(t, 6*time.Hour)
		if w.got.Idle != test.want || w.got.PodsOnWrong != test.moved {
			t.Errorf("%s for five hours, held for three: %s lost, %d Pods moved; want %s and %d", what, w.got.Idle, w.got.PodsOnWrong, test.want, test.moved)
		}
	}
}

func TestThePagesAreWrittenByTheCommand(t *testing.T) {
	found, err := tiny(7).make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	docs := t.TempDir()
	if err := os.Mkdir(filepath.Join(docs, picturePath), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(docs, policyPath)
	if err := os.WriteFile(path, []byte("# The policy\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(docs, found); err == nil || !strings.Contains(err.Error(), "policy.md: want the comparison between") {
		t.Errorf("a page without a place for it: %v", err)
	}
	if err := os.WriteFile(path, []byte("before\n"+briefStart+"old\n"+briefEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := write(docs, found); err != nil {
			t.Fatal(err)
		}
		policies, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := "before\n" + briefStart + found.brief() + briefEnd + "after\n"; string(policies) != want {
			t.Errorf("the page of the policy is\n%s\nwant\n%s", policies, want)
		}
		page, err := os.ReadFile(filepath.Join(docs, pagePath))
		if err != nil || !strings.Contains(string(page), found.brief()) {
			t.Errorf("%v, or the page doesn't have the comparison", err)
		}
	}
}

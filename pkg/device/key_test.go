package device_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// O2. Case 06: what names a DRA device, and what doesn't.
func TestOnlyWhatTheAPIServerWouldAcceptNamesADevice(t *testing.T) {
	tests := map[string]struct {
		text string
		want device.Key
		fail string
	}{
		"driver, pool and device":           {"gpu.example.com/anvil-07/gpu-3", device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3"}, ""},
		"a pool with slashes":               {"gpu.example.com/rack4/anvil-07/gpu-3", device.Key{Driver: "gpu.example.com", Pool: "rack4/anvil-07", Device: "gpu-3"}, ""},
		"a pool with many slashes and dots": {"d/a/b.c/d/e/x", device.Key{Driver: "d", Pool: "a/b.c/d/e", Device: "x"}, ""},
		"a CDI ID":                          {"dra.k8s.io/cpu=claim-6b0f3a52-1f0e-4c1b-9d0c-3f7a1b2c4d5e", device.Key{}, "want driver/pool/device"},
		"a CDI ID with slashes":             {"v.example.com/claim=a/b", device.Key{}, "pool"},
		"nothing":                           {"", device.Key{}, "want driver/pool/device"},
		"a bare ID":                         {"GPU-1", device.Key{}, "want driver/pool/device"},
		"an empty pool":                     {"gpu.example.com//gpu-3", device.Key{}, "pool"},
		"an empty driver":                   {"/anvil-07/gpu-3", device.Key{}, "driver"},
		"an empty device":                   {"gpu.example.com/anvil-07/", device.Key{}, "device"},
		"an upper-case device":              {"gpu.example.com/anvil-07/GPU-3", device.Key{}, "device"},
		"a device with a dot":               {"gpu.example.com/anvil-07/gpu.3", device.Key{}, "device"},
		"a driver that is too long":         {strings.Repeat("d", 64) + "/p/x", device.Key{}, "driver"},
		"a pool that is too long":           {"d/" + strings.Repeat("p", 254) + "/x", device.Key{}, "pool"},
		"a device that is too long":         {"d/p/" + strings.Repeat("x", 64), device.Key{}, "device"},
		"the longest names":                 {strings.Repeat("d", 63) + "/" + strings.Repeat("p", 253) + "/" + strings.Repeat("x", 63), device.Key{Driver: strings.Repeat("d", 63), Pool: strings.Repeat("p", 253), Device: strings.Repeat("x", 63)}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := device.ParseDRA(test.text)
			if test.fail == "" {
				if err != nil || got != test.want {
					t.Fatalf("got %+v, %v, want %+v", got, err, test.want)
				}
				return
			}
			if !errors.Is(err, device.ErrKey) || !strings.Contains(err.Error(), test.fail) {
				t.Fatalf("got %+v, %v, want an error about the %s", got, err, test.fail)
			}
		})
	}
}

// O2. Case 06, "never merge nic-0 of two nodes": a device-plugin ID belongs to
// its node and resource.
func TestTheSamePluginIDOnTwoNodesIsTwoDevices(t *testing.T) {
	a, b, other := plugin(t, "anvil-07", "example.com/nic", "nic-0"), plugin(t, "harbor-12", "example.com/nic", "nic-0"), plugin(t, "anvil-07", "example.com/gpu", "nic-0")
	if a == b || a == other || a.String() == b.String() || a.String() == other.String() {
		t.Errorf("%s, %s and %s are one", a, b, other)
	}
	for name, bad := range map[string][3]string{
		"no node":                     {"", "example.com/nic", "nic-0"},
		"a node with a bar":           {"a|b", "example.com/nic", "nic-0"},
		"a native resource":           {"anvil-07", "cpu", "0"},
		"a resource with two parts":   {"anvil-07", "example.com/nic/vf", "0"},
		"a resource with a bar":       {"anvil-07", "example.com/a|b", "0"},
		"a resource without a name":   {"anvil-07", "example.com/", "0"},
		"a resource with a long name": {"anvil-07", "example.com/" + strings.Repeat("x", 64), "0"},
		"no ID":                       {"anvil-07", "example.com/nic", ""},
	} {
		if key, err := device.NewPlugin(bad[0], bad[1], bad[2]); !errors.Is(err, device.ErrKey) {
			t.Errorf("%s: accepted as %+v", name, key)
		}
	}
}

// keys draws keys of both paths.
func keys() *rapid.Generator[device.Key] {
	return rapid.Custom(func(t *rapid.T) device.Key {
		if rapid.Bool().Draw(t, "dra") {
			key, err := device.NewDRA(
				rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?(\.[a-z0-9]{1,6}){0,2}`).Draw(t, "driver"),
				rapid.StringMatching(`[a-z0-9]{1,6}(\.[a-z]{1,3})?(/[a-z0-9]{1,6}){0,3}`).Draw(t, "pool"),
				rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?`).Draw(t, "device"))
			if err != nil {
				t.Fatal(err)
			}
			return key
		}
		key, err := device.NewPlugin(
			rapid.StringMatching(`[a-z0-9]{1,6}(\.[a-z]{1,3})?`).Draw(t, "node"),
			rapid.StringMatching(`[a-z0-9]{1,6}\.com/[A-Za-z0-9]([-_.A-Za-z0-9]{0,6}[A-Za-z0-9])?`).Draw(t, "resource"),
			rapid.StringOfN(rapid.Rune(), 1, 12, -1).Draw(t, "id"))
		if err != nil {
			t.Fatal(err)
		}
		return key
	})
}

// O1. Property: a key's text names that key and no other, and keys are in one order.
func TestAKeysTextNamesItAndNoOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := keys().Draw(t, "a"), keys().Draw(t, "b")
		if back, err := device.ParseKey(a.String()); err != nil || back != a {
			t.Fatalf("%q was read as %+v, %v, want %+v", a, back, err, a)
		}
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		if (a == b) != (a.String() == b.String()) || (a == b) != (a.Compare(b) == 0) || a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%+v and %+v: %q and %q, compare %d", a, b, a, b, a.Compare(b))
		}
	})
}

func TestAKeyFromOutsideIsCheckedBeforeItIsUsed(t *testing.T) {
	good := device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3"}
	for name, bad := range map[string]device.Key{
		"nothing is set":     {},
		"both paths at once": {Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3", Node: "anvil-07"},
		"half a DRA key":     {Driver: "gpu.example.com", Pool: "anvil-07"},
		"half a plugin key":  {Node: "anvil-07", ID: "GPU-1"},
	} {
		if err := bad.Validate(); !errors.Is(err, device.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := good.Validate(); err != nil || good.Path() != device.PathDRA || good.IsZero() || !(device.Key{}).IsZero() {
		t.Errorf("the good key: %v, %s", err, good.Path())
	}
	for _, text := range []string{"", "a|b", "a|example.com/x|", "a/b"} {
		if key, err := device.ParseKey(text); !errors.Is(err, device.ErrKey) {
			t.Errorf("%q names %+v", text, key)
		}
	}
}

// O3. Status versions of one Pod are ordered as numbers of any size.
func TestStatusVersionsAreOrderedAsNumbersOfAnySize(t *testing.T) {
	ordered := []device.Version{"", "9", "10", "011", "99", "100", "18446744073709551615", "18446744073709551616", "100000000000000000000000000000"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := a.Compare(b), compareInts(i, j); got != want || a.Newer(b) != (want > 0) {
				t.Errorf("%q against %q: %d, want %d", a, b, got, want)
			}
		}
	}
	if device.Version("007").Compare("7") != 0 {
		t.Error("leading zeros count")
	}
	shuffled := []device.Version{"10", "9", "100", "99"}
	slices.SortFunc(shuffled, device.Version.Compare)
	if !slices.Equal(shuffled, []device.Version{"9", "10", "99", "100"}) {
		t.Errorf("sorted as %v", shuffled)
	}
}

func compareInts(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestHealthIsOneOfThreeAndUnhealthyIsTheWorst(t *testing.T) {
	order := []device.Health{"", device.Healthy, device.Unknown, device.Unhealthy}
	for i, a := range order {
		for j, b := range order {
			if a.WorseThan(b) != (i > j) || device.Worst(a, b) != order[max(i, j)] {
				t.Errorf("%q against %q: worse %t, the worst is %q", a, b, a.WorseThan(b), device.Worst(a, b))
			}
		}
	}
	for _, h := range order[1:] {
		if got, err := device.ParseHealth(string(h)); err != nil || got != h {
			t.Errorf("%s: %v", h, err)
		}
	}
	for _, bad := range []string{"", "healthy", "Degraded"} {
		if got, err := device.ParseHealth(bad); err == nil {
			t.Errorf("%q was read as %q", bad, got)
		}
	}
}

// What is a DNS name is what Kubernetes' own expressions say (k8s.io/apimachinery
// pkg/util/validation).
func TestADeviceNameIsWhatTheAPIServerTakes(t *testing.T) {
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	subdomain := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[-a.0Zä_]{0,8}`).Draw(t, "text")
		if _, err := device.NewDRA("d", "p", text); (err == nil) != label.MatchString(text) {
			t.Errorf("device %q: %v", text, err)
		}
		if _, err := device.NewDRA("d", text, "d"); (err == nil) != subdomain.MatchString(text) {
			t.Errorf("pool %q: %v", text, err)
		}
	})
}

package policy_test

import (
	"reflect"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/policy"
)

const ownImage = "ghcr.io/sickbay-dev/sickbay:1.0"

func proving() policy.Base {
	base := policy.DefaultBase()
	base.ProbeImage = ownImage
	return base
}

func TestWhereThePolicySaysNothingDevicesAreProvenBySickbaysOwnProgram(t *testing.T) {
	for name, held := range map[string]*policy.InForce{
		"no policy": policy.New(proving(), nil), "an empty one": policy.New(proving(), parse(t, head+"recovery: {probe: {}, canary: {}}")),
		"one that isn't known": policy.Held(proving(), "line 3"),
	} {
		want := policy.ProbeSettings{
			Hold:   policy.ProgramSettings{Image: ownImage, Args: []string{"probe", "hold"}},
			Probe:  policy.ProgramSettings{Image: ownImage, Args: []string{"probe"}},
			Canary: policy.ProgramSettings{Image: ownImage, Args: []string{"probe", "--for", "5m"}},
		}
		if got := held.Probing("gpu.example.com", []string{"a100"}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: proven by\n%+v, want\n%+v", name, got, want)
		}
	}
}

// A program is said as a whole: the arguments of one image mean nothing to another.
func TestAClassSaysByWhatItsDevicesAreProvenAndThenItsDriver(t *testing.T) {
	held := policy.New(proving(), parse(t, head+`
recovery:
  tolerate: [gpu.example.com/unmonitored]
  probe: {image: all, args: [all]}
  canary: {args: [probe, --for, 30m]}
drivers:
  gpu.example.com:
    recovery:
      class: whole
      tolerate: [gpu.example.com/unmonitored, gpu.example.com/xid, gpu.example.com/lost]
      probe: {image: vendor, command: [dcgmi], args: [diag, -r, "1"]}
classes:
  a100:
    recovery:
      probe: {image: deep}
      tolerate: [gpu.example.com/xid, gpu.example.com/lost]
  b200:
    recovery:
      class: b200-all
      canary: {image: nccl, args: [all_reduce_perf, -g, "1"]}
      tolerate: [gpu.example.com/lost]
  quick:
    recovery:
      probe: {args: []}
      canary: {args: [--for, 8s]}
  trial:
    recovery:
      canary: {image: another}
      tolerate: []
`))
	for name, row := range map[string]struct {
		driver                         string
		classes                        []string
		class, probe, canary, tolerate string
	}{
		"neither is named":      {"nic.example.com", []string{"nic"}, "one by which it was claimed, or else nic.example.com from default", "all all from policy", ownImage + " probe --for 30m from policy", "gpu.example.com/unmonitored from policy"},
		"only the driver":       {"gpu.example.com", nil, "whole from drivers[gpu.example.com]", "vendor dcgmi diag -r 1 from drivers[gpu.example.com]", ownImage + " probe --for 30m from policy", "gpu.example.com/unmonitored, gpu.example.com/xid, gpu.example.com/lost from drivers[gpu.example.com]"},
		"the class, too":        {"gpu.example.com", []string{"a100"}, "whole from drivers[gpu.example.com]", "deep from classes[a100]", ownImage + " probe --for 30m from policy", "gpu.example.com/xid, gpu.example.com/lost from classes[a100]"},
		"two classes say of it": {"gpu.example.com", []string{"b200", "a100"}, "b200-all from classes[b200]", "deep from classes[a100]", "nccl all_reduce_perf -g 1 from classes[b200]", "gpu.example.com/lost from classes[a100]"},
		"arguments alone":       {"nic.example.com", []string{"quick"}, "one by which it was claimed, or else nic.example.com from default", ownImage + " probe from classes[quick]", ownImage + " probe --for 8s from classes[quick]", "gpu.example.com/unmonitored from policy"},
		"one tolerates nothing": {"gpu.example.com", []string{"trial", "b200"}, "b200-all from classes[b200]", "vendor dcgmi diag -r 1 from drivers[gpu.example.com]", "nccl all_reduce_perf -g 1 from classes[b200]", "none from classes[b200]"},
	} {
		for field, want := range map[string]string{"class": row.class, "probe": row.probe, "canary": row.canary, "tolerate": row.tolerate} {
			e := explained(t, held, row.driver, row.classes, "recovery."+field)
			if got := e.Value + " from " + e.Source.String(); got != want {
				t.Errorf("%s: %s is %q, want %q", name, field, got, want)
			}
		}
	}
	// What is explained is what holds, and nobody who gets it can change the policy by it.
	got := held.Probing("gpu.example.com", []string{"a100"})
	want := policy.ProgramSettings{Image: "deep"}
	if !reflect.DeepEqual(got.Probe, want) || got.Class != "whole" || !reflect.DeepEqual(got.Tolerate, []string{"gpu.example.com/xid", "gpu.example.com/lost"}) {
		t.Errorf("proven by %+v", got)
	}
	got.Tolerate[0] = "sickbay.dev/quarantined"
	if again := held.Probing("gpu.example.com", []string{"a100"}); again.Tolerate[0] != "gpu.example.com/xid" {
		t.Errorf("what somebody wrote over holds: %v", again.Tolerate)
	}
}

func TestWithoutAnImageNothingIsExplainedAsAProof(t *testing.T) {
	base := policy.DefaultBase()
	base.Set = func(variable string) bool { return variable == "SICKBAY_PROBE_IMAGE" }
	e := explained(t, policy.New(base, nil), "gpu.example.com", nil, "recovery.probe")
	if got, want := e.Value+" from "+e.Source.String(), "none: no image, SICKBAY_PROBE_IMAGE is empty from SICKBAY_PROBE_IMAGE"; got != want {
		t.Errorf("probe is %q, want %q", got, want)
	}
}

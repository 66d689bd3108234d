package isolation_test

import (
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
)

func policy(set ...func(*isolation.Policy)) isolation.Policy {
	p := isolation.DefaultPolicy()
	p.Mode, p.Way = "enforce", isolation.Taint
	for _, s := range set {
		s(&p)
	}
	return p
}

func faulty(names ...string) []isolation.Faulty {
	var all []isolation.Faulty
	for _, n := range names {
		all = append(all, isolation.Faulty{Device: "gpu.example.com/node-0/" + n, Epoch: 7, Reason: "XidFallenOffBus", Marked: true})
	}
	return all
}

// Q2 in part. A node is isolated when the policy says so, on one of three grounds, and the
// record says on which.
func TestANodeIsIsolatedOnlyOnThePolicysGrounds(t *testing.T) {
	named := func(p *isolation.Policy) { p.Conditions = []string{"GpuRackFault", "KernelDeadlock"} }
	alone := func(p *isolation.Policy) { p.WithoutMarks = true }
	fault := []isolation.Condition{{Type: "GpuRackFault", Reason: "BackplaneDown", Message: "slot 3 is dark"}}
	plugin := []isolation.Faulty{{Device: "node-0/example.com/gpu/0", Unmarkable: true}}
	for name, row := range map[string]struct {
		total      int
		faulty     []isolation.Faulty
		conditions []isolation.Condition
		policy     isolation.Policy
		kind       isolation.Kind
		says       string
	}{
		"half of four":                       {4, faulty("gpu-1", "gpu-0"), nil, policy(), isolation.Devices, "2 of the node's 4 devices are faulty, and the policy isolates it at 2 that are 50% of them: gpu.example.com/node-0/gpu-0 (XidFallenOffBus), gpu.example.com/node-0/gpu-1"},
		"less than half":                     {8, faulty("gpu-0", "gpu-1", "gpu-2"), nil, policy(), "", ""},
		"one of one has a mark of its own":   {1, faulty("gpu-0"), nil, policy(), "", ""},
		"one, where the policy says one":     {1, faulty("gpu-0"), nil, policy(func(p *isolation.Policy) { p.Devices = 1 }), isolation.Devices, "1 of the node's 1 devices"},
		"nobody counted the devices":         {0, faulty("gpu-0", "gpu-1"), nil, policy(), "", ""},
		"many are named in short":            {6, faulty("a", "b", "c", "d", "e", "f"), nil, policy(), isolation.Devices, "d (XidFallenOffBus), 2 more"},
		"a condition that the policy names":  {8, nil, fault, policy(named), isolation.NodeCondition, "its condition GpuRackFault is True, which the policy names (BackplaneDown: slot 3 is dark)"},
		"a condition that it doesn't":        {8, nil, []isolation.Condition{{Type: "DiskPressure"}}, policy(named), "", ""},
		"Ready, whoever wrote it in":         {8, nil, []isolation.Condition{{Type: "Ready"}}, policy(func(p *isolation.Policy) { p.Conditions = []string{"Ready"} }), "", ""},
		"no mark on that path, allowed":      {8, plugin, nil, policy(alone), isolation.NoMark, "nothing can keep a faulty device of it out by itself, and the policy allows to isolate the node for it: node-0/example.com/gpu/0"},
		"no mark on that path, not allowed":  {8, plugin, nil, policy(), "", ""},
		"a device that has a mark, allowed":  {8, faulty("gpu-0"), nil, policy(alone), "", ""},
		"everything, and the policy is off":  {1, append(faulty("gpu-0", "gpu-1"), plugin...), fault, policy(named, alone, func(p *isolation.Policy) { p.Way = isolation.Off }), "", ""},
		"everything, and there is no policy": {1, append(faulty("gpu-0", "gpu-1"), plugin...), fault, isolation.DefaultPolicy(), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ground, ok := isolation.Justify(row.total, row.faulty, row.conditions, row.policy)
			if ok != (row.kind != "") || ground.Kind != row.kind || !strings.Contains(ground.Text, row.says) {
				t.Errorf("justified %t: %+v", ok, ground)
			}
		})
	}
}

// What can't be a policy says all that is wrong with it.
func TestAPolicyThatCantBeSaysWhy(t *testing.T) {
	if err := isolation.DefaultPolicy().Validate(); err != nil {
		t.Error(err)
	}
	err := isolation.Policy{Way: "evict", Percent: 101, Conditions: []string{"Ready"}}.Validate()
	for _, want := range []string{`isolate "evict"`, "devices 0", "percent 101", "Ready isn't allowed", "calm 0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

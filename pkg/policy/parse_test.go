package policy_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sickbay-dev/sickbay/pkg/policy"
)

const head = "apiVersion: sickbay.dev/v1\nkind: Policy\n"

// lines are the messages of a joined error.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestAWrongPolicyIsRefusedWithLineFieldAndWhatIsAllowed(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, row := range map[string]struct{ text, want string }{
		"a negative duration": {head + "quarantine:\n  grace: -5m\n",
			`line 4: quarantine.grace: "-5m"; want a duration such as 30s, 5m or 1h30m, from 1s to 24h`},
		"a duration of zero": {head + "quarantine: {lease: 0s}",
			`line 3: quarantine.lease: "0s"; want a duration such as 30s, 5m or 1h30m, from 1s to 168h`},
		"a duration that is absurd": {head + "quarantine: {grace: 9000h}",
			`line 3: quarantine.grace: "9000h"; want a duration such as 30s, 5m or 1h30m, from 1s to 24h`},
		"a duration without a unit": {head + "quarantine: {grace: 300}",
			`line 3: quarantine.grace: 300; want a duration such as 30s, 5m or 1h30m, from 1s to 24h`},
		"a duration beyond what can be counted": {head + "quarantine: {grace: 99999999999h}",
			`line 3: quarantine.grace: "99999999999h"; want a duration such as 30s, 5m or 1h30m, from 1s to 24h`},
		"a pace of less than seconds": {head + "budgets: {pace: 1500ms}",
			`line 3: budgets.pace: "1500ms"; want a duration such as 10s or 5m in whole seconds, from 1s to 1h`},
		"a field that there isn't": {head + "quarantine: {grac: 5m}",
			"line 3: quarantine.grac: no such field; want grace, if that is meant, or one of grace, recheckFirst, recheckMax, hysteresis, stability, lease, coolDown, markRetry, settlePool, settlePoolGone, settleAllocatable, settleNode, forget, flapLimit, flapWindow, proveWithin, probeWithin, canaryWithin, attempts, attemptPause, attemptPauseMax, relapseWatch"},
		"a field in another place": {head + "grace: 5m\n",
			"line 3: grace: no such field; want one of apiVersion, kind, mode, quarantine, reportingDelay, incidents, budgets, returns, nodes, recovery, drivers, classes"},
		"a field in capitals": {head + "Mode: observe\n",
			"line 3: Mode: no such field; want mode, if that is meant, or one of apiVersion, kind, mode, quarantine, reportingDelay, incidents, budgets, returns, nodes, recovery, drivers, classes"},
		"a field that stands twice": {head + "mode: observe\nmode: enforce\n",
			"line 4: mode: a field that stands in line 3 already; want each once"},
		"a driver that stands twice": {head + "drivers:\n  gpu.example.com: {mode: observe}\n  gpu.example.com: {mode: enforce}\n",
			"line 5: drivers.gpu.example.com: a field that stands in line 4 already; want each once"},
		"a mode that there isn't": {head + "mode: Enforce",
			`line 3: mode: "Enforce"; want observe or enforce`},
		"a node that is out as a reason to isolate it": {head + "nodes: {conditions: [KernelDeadlock, Ready]}",
			`line 3: nodes.conditions[1]: "Ready"; want another condition: a node that is out isn't faulty, and is never isolated for it`},
		"one condition that isn't in a list": {head + "nodes: {conditions: KernelDeadlock}",
			`line 3: nodes.conditions: "KernelDeadlock"; want a list of at most 32 condition types such as KernelDeadlock, without Ready`},
		"a condition that stands twice": {head + "nodes:\n  conditions:\n  - KernelDeadlock\n  - KernelDeadlock\n",
			`line 6: nodes.conditions[1]: "KernelDeadlock" once more; want each once`},
		"a condition that can't be one": {head + "nodes: {conditions: [a b]}",
			`line 3: nodes.conditions[0]: "a b"; want a condition's type such as KernelDeadlock`},
		"a taint of Sickbay's own to tolerate": {head + "recovery: {tolerate: [sickbay.dev/quarantined]}",
			`line 3: recovery.tolerate[0]: "sickbay.dev/quarantined"; want a key of the driver's: of Sickbay's marks its claim has the one of its own case, and no other`},
		"a taint with its value": {head + "recovery: {tolerate: [gpu.example.com/xid=79]}",
			`line 3: recovery.tolerate[0]: "gpu.example.com/xid=79"; want a taint's key such as gpu.example.com/lost`},
		"every taint": {head + `recovery: {tolerate: ["*"]}`,
			`line 3: recovery.tolerate[0]: "*"; want a taint's key such as gpu.example.com/lost`},
		"a taint that stands twice": {head + "recovery: {tolerate: [a/b, a/b]}",
			`line 3: recovery.tolerate[1]: "a/b" once more; want each once`},
		"one taint that isn't in a list": {head + "recovery: {tolerate: a/b}",
			`line 3: recovery.tolerate: "a/b"; want a list of at most 16 taint keys such as gpu.example.com/lost, without those that begin with sickbay.dev/`},
		"a class that can't be one": {head + "recovery: {class: example.com/gpu}",
			`line 3: recovery.class: "example.com/gpu"; want the name of a DeviceClass such as gpu.example.com`},
		"an image with a scheme": {head + "recovery: {probe: {image: https://registry.example.com/diag}}",
			`line 3: recovery.probe.image: "https://registry.example.com/diag"; want an image such as registry.example.com/tools/diag:1.2 or one with @sha256: and its digest`},
		"an image of nothing": {head + `recovery: {canary: {image: ""}}`,
			`line 3: recovery.canary.image: ""; want an image such as registry.example.com/tools/diag:1.2 or one with @sha256: and its digest`},
		"a command in one text": {head + "recovery: {probe: {image: diag, command: dcgmi diag}}",
			`line 3: recovery.probe.command: "dcgmi diag"; want a list of at most 64 texts`},
		"an argument that is a number": {head + "recovery: {probe: {image: diag, args: [diag, -r, 3]}}",
			`line 3: recovery.probe.args[2]: 3; want a text in quotes, not an empty one`},
		"a command without its image": {head + "classes:\n  a100:\n    recovery:\n      canary:\n        command: [sleep]\n",
			`line 7: classes[a100].recovery.canary.command: a command without an image; want the image that it is in: Sickbay's own has no other program, and takes args alone`},
		"a program that there isn't": {head + "recovery: {prober: {image: diag}}",
			"line 3: recovery.prober: no such field; want probe, if that is meant, or one of class, tolerate, probe, canary"},
		"a way to isolate that there isn't": {head + "nodes: {isolate: drain}", `line 3: nodes.isolate: "drain"; want off, taint or cordon`},
		"a mode that is a truth":            {head + "mode: true", `line 3: mode: true; want observe or enforce`},
		"a mode of nothing":                 {head + "mode:\n", `line 3: mode: nothing; want observe or enforce`},
		"a number with a point":             {head + "quarantine: {flapLimit: 3.5}", `line 3: quarantine.flapLimit: 3.5; want a whole number, from 2 to 100`},
		"a number in quotes":                {head + `quarantine: {flapLimit: "3"}`, `line 3: quarantine.flapLimit: "3"; want a whole number, from 2 to 100`},
		"a number that readers differ in":   {head + `quarantine: {flapLimit: 010}`, `line 3: quarantine.flapLimit: 010; want a whole number, from 2 to 100`},
		"a number that is none":             {head + "budgets: {class: {percent: .nan}}", `line 3: budgets.class.percent: .nan; want a number, from 0.01 to 100`},
		"nothing at all of a class":         {head + "budgets: {class: {percent: 0}}", `line 3: budgets.class.percent: 0; want a number, from 0.01 to 100`},
		"more than all":                     {head + "budgets: {class: {percent: 101}}", `line 3: budgets.class.percent: 101; want a number, from 0.01 to 100`},
		"a percentage with its sign":        {head + "budgets: {class: {percent: 10%}}", `line 3: budgets.class.percent: "10%"; want a number, from 0.01 to 100`},
		"a negative limit":                  {head + "budgets: {node: {max: -1}}", `line 3: budgets.node.max: -1; want a whole number, from 1 to 1000000`},
		"a least beyond the most":           {head + "budgets: {node: {max: 2, min: 3}}", `line 3: budgets.node: min 3 and max 2; want a min that isn't more than the max`},
		"a class's least beyond its most": {head + "classes:\n  rare: {budget: {max: 3, min: 5}}",
			`line 4: classes[rare].budget: min 5 and max 3; want a min that isn't more than the max`},
		"no limit and a limit": {head + "budgets: {node: {none: true, max: 2}}", `line 3: budgets.node: none: true beside something else; want either of them`},
		"a longest pause below the first": {head + "drivers: {gpu.example.com: {quarantine: {recheckFirst: 10m, recheckMax: 1m}}}",
			`line 3: drivers[gpu.example.com].quarantine.recheckMax: 1m; want at least recheckFirst, which is 10m`},
		"a list in place of an object":      {head + "drivers: [gpu.example.com]", "line 3: drivers: a list; want an object that has a name for each of them"},
		"a text in place of an object":      {head + "quarantine: short", `line 3: quarantine: "short"; want an object with any of grace, recheckFirst, recheckMax, hysteresis, stability, lease, coolDown, markRetry, settlePool, settlePoolGone, settleAllocatable, settleNode, forget, flapLimit, flapWindow, proveWithin, probeWithin, canaryWithin, attempts, attemptPause, attemptPauseMax, relapseWatch`},
		"an object in place of a value":     {head + "mode: {a: b}", "line 3: mode: an object; want observe or enforce"},
		"a driver of which nothing is said": {head + "drivers: {gpu.example.com: }", "line 3: drivers[gpu.example.com]: nothing; want an object with any of mode, quarantine, reportingDelay, recovery"},
		"a budget of a driver":              {head + "drivers: {gpu.example.com: {budget: {max: 1}}}", "line 3: drivers[gpu.example.com].budget: no such field; want one of mode, quarantine, reportingDelay, recovery"},
		"a driver's name in capitals":       {head + "drivers: {GPU: {mode: observe}}", "line 3: drivers[GPU]: a name that none of the drivers can have; want one such as gpu.example.com or example.com/gpu"},
		"a name of any length":              {head + "classes: {" + strings.Repeat("a", 400) + ": {mode: observe}}", "line 3: classes[" + strings.Repeat("a", 40) + "…]: a name that none of the classes can have; want one such as gpu.example.com or example.com/gpu"},
		"an alias":                          {head + "quarantine: &q {grace: 5m}\ndrivers: {a: {quarantine: *q}}", "line 4: drivers[a].quarantine: an alias (*q); want an object with any of grace, recheckFirst, recheckMax, hysteresis, stability, lease, coolDown, markRetry, settlePool, settlePoolGone, settleAllocatable, settleNode, forget, flapLimit, flapWindow, proveWithin, probeWithin, canaryWithin, attempts, attemptPause, attemptPauseMax, relapseWatch"},
		"a merge":                           {head + "quarantine: {<<: {grace: 5m}}", "line 3: quarantine: a merge (<<) as a name; want a plain text"},
		"another kind":                      {"apiVersion: sickbay.dev/v1\nkind: ConfigMap", `line 2: kind: "ConfigMap"; want Policy`},
		"another version":                   {"apiVersion: sickbay.dev/v2\nkind: Policy", `line 1: apiVersion: "sickbay.dev/v2"; want sickbay.dev/v1`},
		"no kind":                           {"apiVersion: sickbay.dev/v1", "line 1: kind: nothing; want Policy"},
		"no text":                           {"", "an empty text; want apiVersion: sickbay.dev/v1, kind: Policy, and what it should say"},
		"only a comment":                    {"# later\n", "an empty text; want apiVersion: sickbay.dev/v1, kind: Policy, and what it should say"},
		"a text that is no YAML":            {head + "mode: [observe\n", "line 3: did not find expected ',' or ']'; want YAML"},
		"a tab":                             {head + "quarantine:\n\tgrace: 5m\n", "line 4: found character that cannot start any token; want YAML"},
		"two documents":                     {head + "---\n" + head, "line 3: a second document; want one"},
		"what would break a terminal":       {head + "mode: \"\\e[31m\\n\"", `line 3: mode: " [31m "; want observe or enforce`},
		"a value of any length":             {head + "mode: " + long, `line 3: mode: "` + long[:40] + `…"; want observe or enforce`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policy.Parse([]byte(row.text))
			if !errors.Is(err, policy.ErrPolicy) {
				t.Fatalf("error %v, want one that says that the policy is wrong", err)
			}
			if got := lines(err); len(got) != 1 || got[0] != row.want {
				t.Errorf("refused with\n%s\nwant\n%s", strings.Join(got, "\n"), row.want)
			}
		})
	}
}

func TestAllThatIsWrongInAPolicyIsSaidAtOnceInTheOrderOfItsLines(t *testing.T) {
	_, err := policy.Parse([]byte(`kind: policy
mode: on
quarantine:
  grace: soon
  flapLimit: 1
classes:
  a100:
    budget:
      percent: 200
      most: 3
    mode:
`))
	want := []string{
		"line 1: kind: ", "line 1: apiVersion: nothing", "line 2: mode: ", "line 4: quarantine.grace: ", "line 5: quarantine.flapLimit: ",
		"line 9: classes[a100].budget.percent: ", "line 10: classes[a100].budget.most: ", "line 11: classes[a100].mode: nothing",
	}
	got := lines(err)
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d:\n%v", len(got), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("line %d is %q, want %q…", i+1, got[i], want[i])
		}
	}
}

func TestAPolicyThatNobodyWroteByHandIsRefusedForItsSize(t *testing.T) {
	var names strings.Builder
	for i := range 1002 {
		fmt.Fprintf(&names, "  class-%d: {mode: observe}\n", i)
	}
	for text, want := range map[string]string{
		head + "# " + strings.Repeat("x", 300<<10):   "; want at most 262144",
		head + "classes:\n" + names.String():         "line 1004: classes[class-1000]: one name more; want at most 1000",
		head + "mode: " + strings.Repeat("[", 30000): "want YAML",
	} {
		if _, err := policy.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %.200v, want %q", err, want)
		}
	}
}

// full is a policy that says all there is to say.
const full = head + `mode: observe
quarantine: &x
  grace: 10m
  recheckFirst: 20s
  recheckMax: 4m
  hysteresis: 3m
  stability: 30m
  lease: 2h
  coolDown: 10m
  markRetry: 1m30s
  settlePool: 2m
  settlePoolGone: 6m
  settleAllocatable: 7m
  settleNode: 3m
  forget: 240h
  flapLimit: 4
  flapWindow: 1h30m
  proveWithin: 11m
  probeWithin: 16m
  canaryWithin: 31m
  attempts: 6
  attemptPause: 31m
  attemptPauseMax: 25h
  relapseWatch: 25h
reportingDelay: 2m30s
incidents:
  max: 2h
  maxNode: 20m
  pace: 1m
  crowdPace: 15s
  calm: 3m
budgets:
  cluster: {percent: 5, max: 40, min: 2}
  class: {percent: 12.5}
  tenant: {percent: 50, min: 2}
  node: {max: 2}
  pace: 30s
returns: {perNode: 2, perClass: 5, cluster: 9, settle: 20m}
recovery:
  tolerate: [gpu.example.com/unmonitored, gpu.example.com/lost]
  canary: {args: [probe, --for, 30m]}
drivers:
  gpu.example.com:
    mode: enforce
    quarantine: {grace: 3m}
    reportingDelay: 5m
    recovery:
      class: whole-gpus
      tolerate: []
      probe:
        image: registry.example.com:5000/vendor/diag:4.5
        command: [/bin/sh, -c]
        args: ["check -r 1\ncheck -r 2\n"]
classes:
  a100:
    mode: observe
    quarantine: {coolDown: 1h}
    budget: {percent: 2}
    recovery:
      canary: {image: "load@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
  example.com/fpga:
    budget: {max: 2}
  any:
    budget: {none: true}
`

func TestAPolicyThatIsWrittenReadsAsTheSame(t *testing.T) {
	document := parse(t, full)
	text, err := document.Text()
	if err != nil {
		t.Fatal(err)
	}
	again, err := parse(t, string(text)).Text()
	if err != nil || string(again) != string(text) {
		t.Errorf("written as\n%s\nand read and written again as\n%s (%v)", text, again, err)
	}
	var said, written any
	if err := errors.Join(yaml.Unmarshal([]byte(full), &said), yaml.Unmarshal(text, &written)); err != nil || !reflect.DeepEqual(said, written) {
		t.Errorf("what is said is\n%v\nand what is written\n%v (%v)", said, written, err)
	}
}

func parse(t *testing.T, text string) *policy.Document {
	t.Helper()
	document, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// Whatever somebody writes is refused with ErrPolicy, or is a policy by which every
// device can be judged, and which is the same when it is written and read again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "{}", "[]", head, full, head + "drivers: {a: {}}", head + "mode: &a observe\nclasses: {b: {mode: *a}}", "? [a]\n: b", "a: !!binary x", "--- |\n x",
		head + "quarantine: {recheckFirst: 1h}\nclasses: {a: {quarantine: {recheckMax: 1s}}}", "%YAML 1.1\n---\n" + head, "\xff\xfe", head + "mode: !!null observe",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		document, err := policy.Parse(text)
		if err != nil {
			if !errors.Is(err, policy.ErrPolicy) {
				t.Fatalf("%q: error %v doesn't say that the policy is wrong", text, err)
			}
			return
		}
		held := policy.New(policy.DefaultBase(), document)
		drivers, classes := []string{""}, []string{}
		for driver := range document.Drivers {
			drivers = append(drivers, driver)
		}
		for class := range document.Classes {
			classes = append(classes, class)
		}
		for _, driver := range drivers {
			if err := held.For(driver, classes).Validate(); err != nil {
				t.Fatalf("%q, driver %q: %v", text, driver, err)
			}
			held.Explain(driver, classes)
		}
		if err := held.Limits().Validate(); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err := held.Incidents().Validate(); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		written, err := document.Text()
		if err != nil {
			t.Fatal(err)
		}
		again, err := policy.Parse(written)
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, written, err)
		}
		if twice, err := again.Text(); err != nil || string(twice) != string(written) {
			t.Fatalf("%q is written as %q, then as %q (%v)", text, written, twice, err)
		}
	})
}

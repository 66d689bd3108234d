package policy_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

func TestWhereThePolicySaysNothingTheEnvironmentHolds(t *testing.T) {
	base := policy.DefaultBase()
	base.Quarantine.Mode, base.Quarantine.Grace = quarantine.ModeEnforce, 17*time.Minute
	base.Incidents.Max = 3 * time.Hour
	base.Limits.Pace = 7
	for name, said := range map[string]*policy.Document{"no policy": nil, "an empty one": parse(t, head)} {
		held := policy.New(base, said)
		if got := held.For("gpu.example.com", []string{"a100"}); got != base.Quarantine {
			t.Errorf("%s: a device goes by\n%+v, want\n%+v", name, got, base.Quarantine)
		}
		if held.Incidents() != base.Incidents || !reflect.DeepEqual(held.Limits(), base.Limits) || held.Delay("gpu.example.com") != 2*time.Minute || !held.Enforces() {
			t.Errorf("%s: incidents %+v, limits %+v, delay %s, enforces %t", name, held.Incidents(), held.Limits(), held.Delay(""), held.Enforces())
		}
	}
}

// Each field of the policies by which is decided can be said: none keeps its default.
func TestEveryFieldCanBeSaid(t *testing.T) {
	held := policy.New(policy.DefaultBase(), parse(t, full))
	differ := func(what string, got, without any, but ...string) {
		t.Helper()
		g, w := reflect.ValueOf(got), reflect.ValueOf(without)
		for i := range g.NumField() {
			name := g.Type().Field(i).Name
			if reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) && !slices.Contains(but, name) {
				t.Errorf("%s: %s is %v as without a policy: no field says it", what, name, g.Field(i))
			}
		}
	}
	differ("quarantine", held.For("other.example.com", nil), quarantine.DefaultPolicy(), "Rules", "Mode", "Recover")
	differ("incidents", held.Incidents(), incident.DefaultPolicy())
	differ("budgets", held.Limits(), budget.DefaultLimits())
	if got, want := held.Limits().Classes, map[string]budget.Limit{"a100": {Percent: 2, Min: 2}, "example.com/fpga": {Percent: 12.5, Max: 2, Min: 2}, "any": {None: true}}; !reflect.DeepEqual(got, want) {
		t.Errorf("limits of classes are %+v, want %+v", got, want)
	}
}

func TestTheClassOverridesTheDriverAndTheDriverTheRest(t *testing.T) {
	held := policy.New(policy.DefaultBase(), parse(t, head+`
mode: enforce
quarantine: {grace: 10m, coolDown: 10m, lease: 2h}
drivers:
  gpu.example.com:
    mode: observe
    quarantine: {grace: 3m, coolDown: 3m}
classes:
  a100:
    mode: enforce
    quarantine: {grace: 4m}
  h100:
    quarantine: {grace: 5m, flapLimit: 5, recheckFirst: 90s}
  trial:
    mode: observe
    quarantine: {grace: 2m, flapLimit: 7, recheckMax: 60s}
`))
	for name, row := range map[string]struct {
		driver  string
		classes []string
		mode    quarantine.Mode
		grace   time.Duration
		from    policy.Source
	}{
		"neither is named":       {"nic.example.com", []string{"nic"}, "enforce", 10 * time.Minute, policy.Source{Kind: policy.FromPolicy}},
		"only the driver":        {"gpu.example.com", nil, "observe", 3 * time.Minute, policy.Source{Kind: policy.FromDriver, Name: "gpu.example.com"}},
		"the class, too":         {"gpu.example.com", []string{"a100"}, "enforce", 4 * time.Minute, policy.Source{Kind: policy.FromClass, Name: "a100"}},
		"a class says no mode":   {"gpu.example.com", []string{"h100"}, "observe", 5 * time.Minute, policy.Source{Kind: policy.FromClass, Name: "h100"}},
		"two classes say of it":  {"gpu.example.com", []string{"a100", "trial"}, "observe", 4 * time.Minute, policy.Source{Kind: policy.FromClass, Name: "a100"}},
		"and in another order":   {"gpu.example.com", []string{"trial", "a100", "trial"}, "observe", 4 * time.Minute, policy.Source{Kind: policy.FromClass, Name: "a100"}},
		"three, and the longest": {"gpu.example.com", []string{"trial", "a100", "h100"}, "observe", 5 * time.Minute, policy.Source{Kind: policy.FromClass, Name: "h100"}},
	} {
		got := held.For(row.driver, row.classes)
		if got.Mode != row.mode || got.Grace != row.grace {
			t.Errorf("%s: mode %s, grace %s; want %s, %s", name, got.Mode, got.Grace, row.mode, row.grace)
		}
		if from := explained(t, held, row.driver, row.classes, "quarantine.grace").Source; from != row.from {
			t.Errorf("%s: grace comes from %s, want %s", name, from, row.from)
		}
	}
	both := held.For("gpu.example.com", []string{"trial", "h100"})
	if both.FlapLimit != 5 || both.CoolDown != 3*time.Minute || both.Lease != 2*time.Hour {
		t.Errorf("flap limit %d, cool-down %s, lease %s; want the least, the driver's and that of all", both.FlapLimit, both.CoolDown, both.Lease)
	}
	// What two classes say doesn't fit together; it holds all the same.
	if both.RecheckFirst != 90*time.Second || both.RecheckMax != 90*time.Second || both.Validate() != nil {
		t.Errorf("looks from %s to %s (%v), want 90s for both", both.RecheckFirst, both.RecheckMax, both.Validate())
	}
}

func explained(t *testing.T, held *policy.InForce, driver string, classes []string, field string) policy.Explained {
	t.Helper()
	for _, e := range held.Explain(driver, classes) {
		if e.Field == field {
			return e
		}
	}
	t.Fatalf("nothing explains %s", field)
	return policy.Explained{}
}

// Health that comes back has to be good for no shorter than what its driver says may lag.
func TestHysteresisIsNoShorterThanTheReportingDelay(t *testing.T) {
	base := policy.DefaultBase()
	base.Quarantine.Hysteresis = time.Second
	base.Delays = map[string]time.Duration{"": 2 * time.Minute, "slow.example.com": 9 * time.Minute}
	none := policy.New(base, nil)
	if got := none.For("gpu.example.com", nil).Hysteresis; got != time.Second {
		t.Errorf("hysteresis %s where nobody said how late the driver is", got)
	}
	if got := none.For("slow.example.com", nil).Hysteresis; got != 9*time.Minute {
		t.Errorf("hysteresis %s of a driver that a variable names, want 9m", got)
	}
	held := policy.New(base, parse(t, head+"reportingDelay: 3m\ndrivers: {gpu.example.com: {reportingDelay: 5m}}\nclasses: {a100: {quarantine: {hysteresis: 1m}}}"))
	for driver, want := range map[string]time.Duration{"gpu.example.com": 5 * time.Minute, "slow.example.com": 3 * time.Minute, "nic.example.com": 3 * time.Minute} {
		if got := held.For(driver, []string{"a100"}).Hysteresis; got != want || held.Delay(driver) != want {
			t.Errorf("driver %s: hysteresis %s, delay %s; want %s", driver, got, held.Delay(driver), want)
		}
	}
	if from := explained(t, held, "gpu.example.com", []string{"a100"}, "quarantine.hysteresis").Source; from.Kind != policy.FromDriver {
		t.Errorf("it comes from %s, want the driver", from)
	}
}

func TestWhatIsExplainedSaysWhereItComesFrom(t *testing.T) {
	base := policy.DefaultBase()
	base.Set = func(variable string) bool { return variable == "SICKBAY_LEASE" || variable == "SICKBAY_INCIDENT_MAX" }
	held := policy.New(base, parse(t, full))
	plain := policy.New(base, nil)
	for field, want := range map[string][2]string{
		"mode":                 {"observe from classes[a100]", "observe from default"},
		"quarantine.grace":     {"3m from drivers[gpu.example.com]", "5m from default"},
		"quarantine.coolDown":  {"1h from classes[a100]", "5m from default"},
		"quarantine.lease":     {"2h from policy", "1h from SICKBAY_LEASE"},
		"quarantine.flapLimit": {"4 from policy", "3 from default"},
		"reportingDelay":       {"5m from drivers[gpu.example.com]", "2m from default"},
		"incidents.max":        {"2h from policy", "1h from SICKBAY_INCIDENT_MAX"},
		"budgets.cluster":      {"5%, at least 2, at most 40 from policy", "10%, at least 2 from default"},
		"budgets.class[a100]":  {"2%, at least 2 from classes[a100]", "10%, at least 2 from default"},
		"budgets.tenant":       {"50%, at least 2 from policy", "no limit from default"},
		"budgets.node":         {"100%, at least 1, at most 2 from policy", "no limit from default"},
		"budgets.pace":         {"30s from policy", "10s from default"},
		"returns.perNode":      {"2 from policy", "1 from default"},
		"returns.perClass":     {"5 from policy", "4 from default"},
		"returns.cluster":      {"9 from policy", "8 from default"},
		"returns.settle":       {"20m from policy", "10m from default"},
	} {
		for i, f := range []*policy.InForce{held, plain} {
			e := explained(t, f, "gpu.example.com", []string{"a100"}, field)
			if got := e.Value + " from " + e.Source.String(); got != want[i] {
				t.Errorf("%s is %q, want %q", field, got, want[i])
			}
		}
	}
}

// While it isn't known what was decided nothing is changed, whatever the environment says.
func TestWhileThePolicyIsNotKnownNothingIsEnforced(t *testing.T) {
	base := policy.DefaultBase()
	base.Quarantine.Mode = quarantine.ModeEnforce
	held := policy.Held(base, "line 3: mode: nothing")
	if held.Enforces() || held.For("gpu.example.com", nil).Mode != quarantine.ModeObserve || held.Why() == "" {
		t.Errorf("enforces %t, mode %s, why %q", held.Enforces(), held.For("gpu.example.com", nil).Mode, held.Why())
	}
	if e := explained(t, held, "gpu.example.com", nil, "mode"); e.Source.Kind != policy.FromHeld {
		t.Errorf("the mode comes from %s", e.Source)
	}
}

func TestItEnforcesWhereAnybodySaysSo(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "mode: observe": false, "mode: enforce": true,
		"mode: enforce\nclasses: {a: {mode: observe}}": true,
		"drivers: {a: {mode: enforce}}":                true,
		"classes: {a: {mode: enforce}}":                true,
		"drivers: {a: {mode: observe}}":                false,
	} {
		if got := policy.New(policy.DefaultBase(), parse(t, head+text)).Enforces(); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

// Whatever two levels say, the more special one holds, and what holds is valid.
func TestTheOrderHoldsForEveryField(t *testing.T) {
	fields := reflect.TypeFor[policy.Quarantine]()
	rapid.Check(t, func(r *rapid.T) {
		document := &policy.Document{APIVersion: policy.APIVersion, Kind: policy.Kind}
		base := policy.DefaultBase()
		say := func(level string) *policy.Quarantine {
			q := &policy.Quarantine{}
			for i := range fields.NumField() {
				if !rapid.Bool().Draw(r, level) {
					continue
				}
				switch field := reflect.ValueOf(q).Elem().Field(i).Addr().Interface().(type) {
				case **policy.Duration:
					*field = new(policy.Duration(rapid.Int64Range(int64(time.Minute), int64(time.Hour)).Draw(r, "d")))
				case **int:
					*field = new(rapid.IntRange(2, 100).Draw(r, "n"))
				}
			}
			return q
		}
		levels := []*policy.Quarantine{say("class"), say("driver"), say("all")}
		document.Quarantine = levels[2]
		document.Drivers = map[string]*policy.Driver{"d": {Quarantine: levels[1]}}
		document.Classes = map[string]*policy.Class{"c": {Quarantine: levels[0]}}
		got := policy.New(base, document).For("d", []string{"c"})
		if err := got.Validate(); err != nil {
			r.Fatal(err)
		}
		// What is never less than another field is raised to it.
		raised := map[string]time.Duration{"RecheckMax": got.RecheckFirst, "AttemptPauseMax": got.AttemptPause}
		for i := range fields.NumField() {
			name := fields.Field(i).Name
			want := reflect.ValueOf(base.Quarantine).FieldByName(name)
			for _, level := range []int{2, 1, 0} {
				if said := reflect.ValueOf(*levels[level]).Field(i); !said.IsNil() {
					want = said.Elem()
				}
			}
			held := reflect.ValueOf(got).FieldByName(name)
			if to, raises := raised[name]; held.Int() != want.Int() && (!raises || held.Int() != int64(to)) {
				r.Fatalf("%s is %v, want %v", name, held, want)
			}
		}
	})
}

// A ceiling that is said lowers a floor that was only there before, and a floor raises a
// ceiling; what nothing limited before is limited by what is said alone.
func TestALimitThatIsSaidWinsOverWhatWasThereBefore(t *testing.T) {
	base := policy.DefaultBase()
	base.Limits.Class = budget.Limit{Percent: 20, Min: 4, Max: 6}
	for text, want := range map[string]budget.Limit{
		"{max: 2}": {Percent: 20, Min: 2, Max: 2}, "{min: 9}": {Percent: 20, Min: 9, Max: 9}, "{percent: 1}": {Percent: 1, Min: 4, Max: 6},
		"{max: 8, min: 1}": {Percent: 20, Min: 1, Max: 8}, "{none: true}": {None: true},
	} {
		limits := policy.New(base, parse(t, head+"classes: {a: {budget: "+text+"}}")).Limits()
		if got := limits.Classes["a"]; got != want || limits.Validate() != nil {
			t.Errorf("%s: %+v (%v), want %+v", text, got, limits.Validate(), want)
		}
	}
	limits := policy.New(base, parse(t, head+"budgets: {node: {max: 3}, tenant: {none: false}}")).Limits()
	if limits.Node != (budget.Limit{Percent: 100, Max: 3}) || limits.Tenant != (budget.Limit{Percent: 100}) {
		t.Errorf("node %+v, tenant %+v", limits.Node, limits.Tenant)
	}
}

// Q2 in part. No node is isolated unless a policy says so, and what it says holds.
func TestNodesAreIsolatedOnlyWhereThePolicySaysSo(t *testing.T) {
	if held := policy.New(policy.DefaultBase(), nil).Isolation(); held.Way != isolation.Off || held.Validate() != nil {
		t.Errorf("without a policy: %+v", held)
	}
	said, err := policy.Parse([]byte(head + `
mode: enforce
nodes:
  isolate: cordon
  devices: 3
  percent: 75
  conditions: [KernelDeadlock, example.com/GpuRackFault]
  withoutMarks: true
  calm: 1h
`))
	if err != nil {
		t.Fatal(err)
	}
	want := isolation.Policy{
		Mode: quarantine.ModeEnforce, Way: isolation.Cordon, Devices: 3, Percent: 75,
		Conditions: []string{"KernelDeadlock", "example.com/GpuRackFault"}, WithoutMarks: true, Calm: time.Hour,
	}
	held := policy.New(policy.DefaultBase(), said)
	if got := held.Isolation(); !reflect.DeepEqual(got, want) {
		t.Errorf("holds %+v, want %+v", got, want)
	}
	for _, e := range held.Explain("gpu.example.com", nil) {
		if e.Field == "nodes.conditions" && (e.Value != "KernelDeadlock, example.com/GpuRackFault" || e.Source.Kind != policy.FromPolicy) {
			t.Errorf("explained as %+v", e)
		}
	}
	if got := policy.Held(policy.DefaultBase(), "it is wrong").Isolation(); got.Mode != quarantine.ModeObserve || got.Way != isolation.Off {
		t.Errorf("while it isn't known what was decided: %+v", got)
	}
}

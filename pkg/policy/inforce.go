package policy

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Base is what holds where a policy says nothing: the environment's word, and the
// built-in values where that is silent, too.
type Base struct {
	Quarantine quarantine.Policy
	Incidents  incident.Policy
	Limits     budget.Limits
	// Delays are the reporting delays, by driver; under the empty name stands the one
	// for all that aren't named.
	Delays map[string]time.Duration
	// ProbeImage is Sickbay's own image, for what runs on devices that are to be proven
	// healthy; empty where nothing is proven.
	ProbeImage string
	// Set tells which variables are set; nil is none.
	Set func(variable string) bool
}

// DefaultBase is what holds where nobody says anything.
func DefaultBase() Base {
	return Base{
		Quarantine: quarantine.DefaultPolicy(), Incidents: incident.DefaultPolicy(), Limits: budget.DefaultLimits(),
		Delays: map[string]time.Duration{"": 2 * time.Minute},
	}
}

// InForce is what holds now: a policy over what holds without it. It is never changed;
// another policy makes another one.
type InForce struct {
	base Base
	said *Document
	// held says why nothing is changed in the cluster, whatever is said.
	held string
}

// New returns what holds by a policy; nil is none.
func New(base Base, said *Document) *InForce {
	if said == nil {
		said = &Document{}
	}
	return &InForce{base: base, said: said}
}

// Held is what holds while it isn't known what an operator decided: it only observes.
// why is told to who asks.
func Held(base Base, why string) *InForce {
	f := New(base, nil)
	f.held = why
	return f
}

// Why says why it only observes although nobody said so; else it is empty.
func (f *InForce) Why() string { return f.held }

// Document is the policy's own text; it says nothing where there is none.
func (f *InForce) Document() *Document { return f.said }

// For is the policy of one device, by its driver (or its plugin's resource) and its
// classes.
func (f *InForce) For(driver string, classes []string) quarantine.Policy {
	held, _ := f.quarantine(driver, classes)
	return held
}

// Saying is what For goes by, as a text: it is another where something else is said, or
// where somebody else says the same.
func (f *InForce) Saying(driver string, classes []string) string {
	held, from := f.quarantine(driver, classes)
	return fmt.Sprint(held, from)
}

// Enforces tells whether it makes marks for any device.
func (f *InForce) Enforces() bool {
	if f.held != "" {
		return false
	}
	enforces := func(m *quarantine.Mode) bool { return m != nil && *m == quarantine.ModeEnforce }
	if enforces(f.said.Mode) || f.said.Mode == nil && f.base.Quarantine.Mode == quarantine.ModeEnforce {
		return true
	}
	for _, d := range f.said.Drivers {
		if enforces(d.Mode) {
			return true
		}
	}
	for _, c := range f.said.Classes {
		if enforces(c.Mode) {
			return true
		}
	}
	return false
}

// Delay is how late what a driver says may show.
func (f *InForce) Delay(driver string) time.Duration {
	delay, _ := f.delay(driver)
	return delay
}

// Incidents is how long many devices at once are held.
func (f *InForce) Incidents() incident.Policy {
	held := f.base.Incidents
	overlay(&held, f.said.Incidents, func(string) {})
	return held
}

// Isolation is when whole nodes are isolated. No variable says so: without a policy none
// is.
func (f *InForce) Isolation() isolation.Policy {
	held, _ := f.isolation()
	return held
}

// isolation is that, and which fields of it are said, by their names in Go.
func (f *InForce) isolation() (isolation.Policy, map[string]bool) {
	held, said := isolation.DefaultPolicy(), map[string]bool{}
	if n := f.said.Nodes; n != nil {
		set := func(name string) { said[name] = true }
		if n.Isolate != nil {
			held.Way = *n.Isolate
			set("Isolate")
		}
		if len(n.Conditions) > 0 {
			held.Conditions = slices.Clone(n.Conditions)
			set("Conditions")
		}
		others := struct {
			Devices      *int
			Percent      *float64
			WithoutMarks *bool
			Calm         *Duration
		}{n.Devices, n.Percent, n.WithoutMarks, n.Calm}
		overlay(&held, &others, set)
	}
	held.Mode = f.For("", nil).Mode
	return held, said
}

// Limits are how many devices may be out at once.
func (f *InForce) Limits() budget.Limits { return f.said.over(f.base.Limits) }

// over lays what is said of budgets over others.
func (d *Document) over(limits budget.Limits) budget.Limits {
	limits.Classes = maps.Clone(limits.Classes)
	if b := d.Budgets; b != nil {
		limits.Cluster, limits.Class = b.Cluster.over(limits.Cluster), b.Class.over(limits.Class)
		limits.Tenant, limits.Node = b.Tenant.over(limits.Tenant), b.Node.over(limits.Node)
		if b.Pace != nil {
			limits.Pace = int(time.Duration(*b.Pace) / time.Second)
		}
	}
	if r := d.Returns; r != nil {
		limits.Returns = r.over(limits.Returns)
	}
	for class, said := range d.Classes {
		if said.Budget == nil {
			continue
		}
		before, named := limits.Classes[class]
		if !named {
			before = limits.Class
		}
		if limits.Classes == nil {
			limits.Classes = map[string]budget.Limit{}
		}
		limits.Classes[class] = said.Budget.over(before)
	}
	return limits
}

func (r *Returns) over(limits budget.ReturnLimits) budget.ReturnLimits {
	for _, n := range []struct {
		said *int
		held *int
	}{{r.PerNode, &limits.Node}, {r.PerClass, &limits.Class}, {r.Cluster, &limits.Cluster}} {
		if n.said != nil {
			*n.held = *n.said
		}
	}
	if r.Settle != nil {
		limits.Settle = int(time.Duration(*r.Settle) / time.Second)
	}
	return limits
}

func (l *Limit) over(before budget.Limit) budget.Limit {
	if l == nil {
		return before
	}
	if l.None != nil && *l.None {
		return budget.Limit{None: true}
	}
	if before.None {
		before = budget.Limit{Percent: 100}
	}
	if l.Percent != nil {
		before.Percent = *l.Percent
	}
	// What is said wins over a floor or a ceiling that was only there before.
	if l.Max != nil {
		before.Max, before.Min = *l.Max, min(before.Min, *l.Max)
	}
	if l.Min != nil {
		if before.Min = *l.Min; before.Max > 0 {
			before.Max = max(before.Max, *l.Min)
		}
	}
	return before
}

// said are the limits that are said, by their paths.
func (d *Document) said() map[string]*Limit {
	said := map[string]*Limit{}
	if b := d.Budgets; b != nil {
		said["budgets.cluster"], said["budgets.class"], said["budgets.tenant"], said["budgets.node"] = b.Cluster, b.Class, b.Tenant, b.Node
	}
	for class, c := range d.Classes {
		said["classes["+class+"].budget"] = c.Budget
	}
	maps.DeleteFunc(said, func(_ string, limit *Limit) bool { return limit == nil })
	return said
}

// delay is a driver's reporting delay, and where it comes from.
func (f *InForce) delay(driver string) (time.Duration, Source) {
	if d := f.said.Drivers[driver]; d != nil && d.ReportingDelay != nil {
		return time.Duration(*d.ReportingDelay), Source{Kind: FromDriver, Name: driver}
	}
	if f.said.ReportingDelay != nil {
		return time.Duration(*f.said.ReportingDelay), Source{Kind: FromPolicy}
	}
	held, named := f.base.Delays[driver]
	if !named {
		held = f.base.Delays[""]
	}
	return held, f.unsaid("SICKBAY_REPORTING_DELAY")
}

// delayIsSaid tells whether somebody said how late this driver's word may show.
func (f *InForce) delayIsSaid(driver string) bool {
	_, source := f.delay(driver)
	_, named := f.base.Delays[driver]
	return source.Kind == FromDriver || source.Kind == FromPolicy || named
}

// unsaid is the source of what the policy says nothing of.
func (f *InForce) unsaid(variable string) Source {
	if f.base.Set != nil && f.base.Set(variable) {
		return Source{Kind: FromVariable, Name: variable}
	}
	return Source{Kind: FromDefault}
}

// quarantine is the policy of one device, and where each field of it comes from, by the
// names of the fields in Go.
func (f *InForce) quarantine(driver string, classes []string) (quarantine.Policy, map[string]Source) {
	held, from := f.base.Quarantine, map[string]Source{"Mode": f.unsaid("SICKBAY_MODE")}
	for _, field := range fieldsOf(reflect.TypeFor[Quarantine]()) {
		from[nameOf[Quarantine](field)] = f.unsaid(field.tag.Get("env"))
	}
	lay := func(mode *quarantine.Mode, said *Quarantine, source Source) {
		if mode != nil {
			held.Mode, from["Mode"] = *mode, source
		}
		overlay(&held, said, func(name string) { from[name] = source })
	}
	lay(f.said.Mode, f.said.Quarantine, Source{Kind: FromPolicy})
	if d := f.said.Drivers[driver]; d != nil {
		lay(d.Mode, d.Quarantine, Source{Kind: FromDriver, Name: driver})
	}
	f.layClasses(classes, lay)
	if held.RecheckMax < held.RecheckFirst {
		held.RecheckMax, from["RecheckMax"] = held.RecheckFirst, from["RecheckFirst"]
	}
	if held.AttemptPauseMax < held.AttemptPause {
		held.AttemptPauseMax, from["AttemptPauseMax"] = held.AttemptPause, from["AttemptPause"]
	}
	if delay, source := f.delay(driver); f.delayIsSaid(driver) && held.Hysteresis < delay {
		held.Hysteresis, from["Hysteresis"] = delay, source
	}
	if f.held != "" {
		held.Mode, from["Mode"] = quarantine.ModeObserve, Source{Kind: FromHeld}
	}
	return held, from
}

// layClasses lays over what a device's classes say. Where several say something of the
// same field, the one holds that is more careful: observe, the longest duration, the
// least number.
func (f *InForce) layClasses(classes []string, lay func(*quarantine.Mode, *Quarantine, Source)) {
	classes = slices.Compact(slices.Sorted(slices.Values(classes)))
	for _, class := range classes {
		said := f.said.Classes[class]
		if said == nil {
			continue
		}
		source := Source{Kind: FromClass, Name: class}
		if said.Mode != nil && !f.anyOther(classes, class, func(o *Class) bool {
			return o.Mode != nil && *said.Mode == quarantine.ModeEnforce && *o.Mode == quarantine.ModeObserve
		}) {
			lay(said.Mode, nil, source)
		}
		if said.Quarantine == nil {
			continue
		}
		mine := reflect.ValueOf(*said.Quarantine)
		for i := range mine.NumField() {
			if mine.Field(i).IsNil() || f.anyOther(classes, class, func(o *Class) bool {
				return o.Quarantine != nil && moreCareful(reflect.ValueOf(*o.Quarantine).Field(i), mine.Field(i))
			}) {
				continue
			}
			only := &Quarantine{}
			reflect.ValueOf(only).Elem().Field(i).Set(mine.Field(i))
			lay(nil, only, source)
		}
	}
}

func (f *InForce) anyOther(classes []string, than string, is func(*Class) bool) bool {
	return slices.ContainsFunc(classes, func(class string) bool {
		said := f.said.Classes[class]
		return class != than && said != nil && is(said)
	})
}

// moreCareful tells whether one value of a field is more careful than another.
func moreCareful(a, than reflect.Value) bool {
	if a.IsNil() {
		return false
	}
	if a, isDuration := a.Interface().(*Duration); isDuration {
		return *a > *than.Interface().(*Duration)
	}
	return *a.Interface().(*int) < *than.Interface().(*int)
}

// nameOf is the name that a field has in Go.
func nameOf[T any](f field) string { return reflect.TypeFor[T]().Field(f.i).Name }

// overlay sets the fields of a policy that are said, by their names, and tells which.
func overlay[P, S any](policy *P, said *S, set func(name string)) {
	if said == nil {
		return
	}
	from, into := reflect.ValueOf(said).Elem(), reflect.ValueOf(policy).Elem()
	for i := range from.NumField() {
		if from.Field(i).IsNil() {
			continue
		}
		name := from.Type().Field(i).Name
		field := into.FieldByName(name)
		field.Set(from.Field(i).Elem().Convert(field.Type()))
		set(name)
	}
}

// SourceKind is who said what holds.
type SourceKind string

const (
	// FromDefault: nobody said anything.
	FromDefault SourceKind = "default"
	// FromVariable: an environment variable.
	FromVariable SourceKind = "environment"
	// FromPolicy: the policy, of all devices.
	FromPolicy SourceKind = "policy"
	// FromDriver and FromClass: the policy, of a driver's or a class's devices.
	FromDriver SourceKind = "driver"
	FromClass  SourceKind = "class"
	// FromHeld: it isn't known what an operator decided.
	FromHeld SourceKind = "held"
)

// Source is where a value comes from.
type Source struct {
	Kind SourceKind `json:"kind"`
	// Name is the variable's, the driver's or the class's.
	Name string `json:"name,omitempty"`
}

// String is the source as people read it.
func (s Source) String() string {
	switch s.Kind {
	case FromVariable:
		return s.Name
	case FromDriver:
		return "drivers[" + s.Name + "]"
	case FromClass:
		return "classes[" + s.Name + "]"
	case FromHeld:
		return "the policy isn't known"
	}
	return string(s.Kind)
}

// Explained is what holds of one field, and where it comes from.
type Explained struct {
	Field  string `json:"field"`
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Explain lists all that holds for one device, and where it comes from.
func (f *InForce) Explain(driver string, classes []string) []Explained {
	held, from := f.quarantine(driver, classes)
	delay, delayFrom := f.delay(driver)
	all := []Explained{{"mode", string(held.Mode), from["Mode"]}}
	values := reflect.ValueOf(held)
	for _, field := range fieldsOf(reflect.TypeFor[Quarantine]()) {
		name := nameOf[Quarantine](field)
		all = append(all, Explained{"quarantine." + field.name, shown(values.FieldByName(name)), from[name]})
	}
	all = append(all, Explained{"reportingDelay", Duration(delay).String(), delayFrom})
	incidents := reflect.ValueOf(f.Incidents())
	for _, field := range fieldsOf(reflect.TypeFor[Incidents]()) {
		name, source := nameOf[Incidents](field), f.unsaid(field.tag.Get("env"))
		if f.said.Incidents != nil && !reflect.ValueOf(*f.said.Incidents).FieldByName(name).IsNil() {
			source = Source{Kind: FromPolicy}
		}
		all = append(all, Explained{"incidents." + field.name, shown(incidents.FieldByName(name)), source})
	}
	return slices.Concat(all, f.explainLimits(classes), f.explainReturns(), f.explainIsolation(), f.explainProbing(driver, classes))
}

// explainIsolation lists when the node that a device is on is isolated.
func (f *InForce) explainIsolation() []Explained {
	held, said := f.isolation()
	values := map[string]string{
		"isolate": string(held.Way), "devices": strconv.Itoa(held.Devices), "percent": strconv.FormatFloat(held.Percent, 'f', -1, 64),
		"conditions": cmp.Or(strings.Join(held.Conditions, ", "), "none"), "withoutMarks": strconv.FormatBool(held.WithoutMarks), "calm": Duration(held.Calm).String(),
	}
	var all []Explained
	for _, field := range fieldsOf(reflect.TypeFor[Nodes]()) {
		one := Explained{"nodes." + field.name, values[field.name], Source{Kind: FromDefault}}
		if said[nameOf[Nodes](field)] {
			one.Source = Source{Kind: FromPolicy}
		}
		all = append(all, one)
	}
	return all
}

func shown(value reflect.Value) string {
	switch v := value.Interface().(type) {
	case time.Duration:
		return Duration(v).String()
	case int:
		return strconv.Itoa(v)
	}
	return value.String()
}

// explainReturns lists how many devices come back at once.
func (f *InForce) explainReturns() []Explained {
	held, said := f.Limits().Returns, reflect.ValueOf(*cmp.Or(f.said.Returns, &Returns{}))
	values := map[string]string{
		"perNode": strconv.Itoa(held.Node), "perClass": strconv.Itoa(held.Class), "cluster": strconv.Itoa(held.Cluster),
		"settle": Duration(time.Duration(held.Settle) * time.Second).String(),
	}
	var all []Explained
	for _, field := range fieldsOf(reflect.TypeFor[Returns]()) {
		one := Explained{"returns." + field.name, values[field.name], f.unsaid(field.tag.Get("env"))}
		if !said.FieldByName(nameOf[Returns](field)).IsNil() {
			one.Source = Source{Kind: FromPolicy}
		}
		all = append(all, one)
	}
	return all
}

// explainLimits lists the budgets that a device counts in.
func (f *InForce) explainLimits(classes []string) []Explained {
	limits, said := reflect.ValueOf(f.Limits()), reflect.ValueOf(*cmp.Or(f.said.Budgets, &Budgets{}))
	var all []Explained
	for _, field := range fieldsOf(reflect.TypeFor[Budgets]()) {
		name, source := nameOf[Budgets](field), f.unsaid(field.tag.Get("env"))
		if !said.FieldByName(name).IsNil() {
			source = Source{Kind: FromPolicy}
		}
		one := Explained{"budgets." + field.name, "", source}
		switch held := limits.FieldByName(name).Interface().(type) {
		case budget.Limit:
			one.Value = held.String()
		case int:
			one.Value = Duration(time.Duration(held) * time.Second).String()
		}
		if name != "Class" {
			all = append(all, one)
			continue
		}
		for _, class := range slices.Compact(slices.Sorted(slices.Values(classes))) {
			own := one
			own.Field += "[" + class + "]"
			if c := f.said.Classes[class]; c != nil && c.Budget != nil {
				own.Value, own.Source = f.Limits().Classes[class].String(), Source{Kind: FromClass, Name: class}
			}
			all = append(all, own)
		}
	}
	return all
}

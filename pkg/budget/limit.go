package budget

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limit says how many devices of a scope may be kept out at once: a percentage of the
// eligible ones, rounded down, no more than Max and no less than Min.
//
// A scope is full when its limit is reached. Of 288 devices 1 % are 2.88, so two may be
// kept out at once, and the third waits. Of 3 devices 20 % are 0.6, which would keep
// none out for ever; Min is 1 at least, so one may.
type Limit struct {
	// Percent of the eligible devices, 0 to 100.
	Percent float64 `json:"percent"`
	// Max is the most, whatever the percentage says; 0 is no such bound.
	Max int `json:"max,omitempty"`
	// Min is the least, whatever the percentage says; it is 1 at least.
	Min int `json:"min,omitempty"`
	// None is no limit at all.
	None bool `json:"none,omitempty"`
}

// rounding is what a product of a whole number and a percentage may be off by.
const rounding = 1e-9

// Of is the limit of a scope with so many eligible devices. Where their number isn't
// known it is Min.
func (l Limit) Of(eligible int) int {
	n := int(math.Floor(float64(max(eligible, 0))*l.Percent/100 + rounding))
	if l.Max > 0 {
		n = min(n, l.Max)
	}
	return max(n, l.Min, 1)
}

func (l Limit) validate(name string) error {
	switch {
	case math.IsNaN(l.Percent) || l.Percent < 0 || l.Percent > 100:
		return fmt.Errorf("%s: percent %v: want 0 to 100", name, l.Percent)
	case l.Min < 0 || l.Max < 0:
		return fmt.Errorf("%s: min %d, max %d: want none below zero", name, l.Min, l.Max)
	case l.Max > 0 && l.Min > l.Max:
		return fmt.Errorf("%s: min %d is more than max %d", name, l.Min, l.Max)
	}
	return nil
}

// String is the limit as people read it.
func (l Limit) String() string {
	if l.None {
		return "no limit"
	}
	text := fmt.Sprintf("%v%%, at least %d", l.Percent, max(l.Min, 1))
	if l.Max > 0 {
		text += fmt.Sprintf(", at most %d", l.Max)
	}
	return text
}

// Limits are the operator's choices. They are an input of every decision.
type Limits struct {
	Cluster Limit `json:"cluster"`
	// Class holds for each class that Classes doesn't name.
	Class   Limit            `json:"class"`
	Classes map[string]Limit `json:"classes,omitempty"`
	Tenant  Limit            `json:"tenant"`
	Node    Limit            `json:"node"`
	// Pace is how far apart, in seconds, two that waited are let in that share a class:
	// a budget that opens again isn't used up at once.
	Pace int `json:"paceSeconds"`
	// Returns are how many devices come back at once.
	Returns ReturnLimits `json:"returns,omitzero"`
}

// DefaultLimits returns what holds where the operator says nothing.
func DefaultLimits() Limits {
	return Limits{
		Cluster: Limit{Percent: 10, Min: 2},
		Class:   Limit{Percent: 10, Min: 2},
		Tenant:  Limit{None: true},
		Node:    Limit{None: true},
		Pace:    10,
		Returns: DefaultReturns(),
	}
}

// Validate names everything that is wrong, all at once.
func (l Limits) Validate() error {
	errs := []error{l.Cluster.validate("cluster"), l.Class.validate("class"), l.Tenant.validate("tenant"), l.Node.validate("node")}
	for _, name := range slices.Sorted(maps.Keys(l.Classes)) {
		errs = append(errs, l.Classes[name].validate("class "+name))
	}
	if l.Pace < 0 {
		errs = append(errs, fmt.Errorf("pace %d s: want zero or more", l.Pace))
	}
	return errors.Join(append(errs, l.Returns.validate())...)
}

// Limit is the limit of a scope, and whether there is one.
func (l Limits) Limit(s Scope) (Limit, bool) {
	limit, bounded := l.limit(s)
	return limit, bounded && !limit.None
}

func (l Limits) limit(s Scope) (Limit, bool) {
	switch s.Kind {
	case Cluster:
		return l.Cluster, true
	case Class:
		if limit, ok := l.Classes[s.Name]; ok {
			return limit, true
		}
		return l.Class, true
	case Tenant:
		return l.Tenant, true
	case Node:
		return l.Node, true
	}
	return Limit{}, false
}

// ParseLimit reads a limit as people write it: "10%", "10% min 2", "5% min 1 max 40".
func ParseLimit(text string) (Limit, error) {
	fields := strings.Fields(text)
	if len(fields) == 1 && fields[0] == "none" {
		return Limit{None: true}, nil
	}
	if len(fields) == 0 || len(fields)%2 == 0 {
		return Limit{}, fmt.Errorf("limit %q: want %s", text, limitForm)
	}
	number, percent := strings.CutSuffix(fields[0], "%")
	value, err := strconv.ParseFloat(number, 64)
	if !percent || err != nil {
		return Limit{}, fmt.Errorf("limit %q: %q is no percentage; want %s", text, fields[0], limitForm)
	}
	limit := Limit{Percent: value}
	for i := 1; i < len(fields); i += 2 {
		n, err := strconv.Atoi(fields[i+1])
		switch {
		case err != nil || n < 1:
			return Limit{}, fmt.Errorf("limit %q: %s %q: want a whole number above zero", text, fields[i], fields[i+1])
		case fields[i] == "min" && limit.Min == 0:
			limit.Min = n
		case fields[i] == "max" && limit.Max == 0:
			limit.Max = n
		default:
			return Limit{}, fmt.Errorf("limit %q: %q: want %s", text, fields[i], limitForm)
		}
	}
	return limit, limit.validate(fmt.Sprintf("limit %q", text))
}

const limitForm = `a percentage of the eligible devices, with a floor and a ceiling if need be, like "10%" or "10% min 2 max 40", or none`

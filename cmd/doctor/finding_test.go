package doctor

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func saying(findings ...Finding) Check {
	return Check{Name: "a", Ask: func(context.Context) ([]Finding, error) { return findings, nil }}
}

func TestTheStateThatMattersMostIsTheReports(t *testing.T) {
	for _, c := range []struct {
		states []State
		want   State
	}{
		{nil, OK},
		{[]State{OK, OK}, OK},
		{[]State{OK, Degraded}, Degraded},
		{[]State{Unknown, Degraded}, Unknown},
		{[]State{Degraded, Missing, Unknown}, Missing},
	} {
		var findings []Finding
		for _, state := range c.states {
			findings = append(findings, Finding{State: state})
		}
		if got := (Report{Findings: findings}).Worst(); got != c.want {
			t.Errorf("the worst of %v is %s, want %s", c.states, got, c.want)
		}
	}
}

func TestNothingElseIsAskedOfASystemThatDoesNotAnswer(t *testing.T) {
	away := System{
		Reach: saying(Finding{Check: "away", State: Missing, stops: true}),
		Then: []Check{{Name: "asked", Ask: func(context.Context) ([]Finding, error) {
			t.Error("it was asked although its system doesn't answer")
			return nil, nil
		}}},
	}
	there := System{Reach: saying(Finding{Check: "there"}), Then: []Check{saying(Finding{Check: "first"}), saying(Finding{Check: "second"})}}
	var names []string
	for _, f := range Run(t.Context(), time.Minute, away, there).Findings {
		names = append(names, f.Check)
	}
	if want := []string{"away", "there", "first", "second"}; !slices.Equal(names, want) {
		t.Errorf("findings %v, want %v", names, want)
	}
}

func TestACheckThatFailsOrHangsIsUnknownAndLosesNoOther(t *testing.T) {
	report := Run(t.Context(), 20*time.Millisecond, System{Reach: saying(), Then: []Check{
		{Name: "hangs", Lost: "whether it works", Ask: func(ctx context.Context) ([]Finding, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		{Name: "fails half way", Lost: "the rest", Ask: func(context.Context) ([]Finding, error) {
			return []Finding{{Check: "half", State: OK}}, errors.New("refused")
		}},
		saying(Finding{Check: "fine", State: OK}),
	}})
	var got []string
	for _, f := range report.Findings {
		got = append(got, f.Check+" "+string(f.State)+" "+f.Without)
	}
	want := []string{"hangs unknown whether it works isn't known", "half ok ", "fails half way unknown the rest isn't known", "fine ok "}
	if !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
}

func TestManyNamesAreCounted(t *testing.T) {
	if got := names([]string{"f", "b", "a", "c", "b", "e", "d", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Errorf("names: %q", got)
	}
	if got := names([]string{"b", "a"}); got != "a, b" {
		t.Errorf("names: %q", got)
	}
}

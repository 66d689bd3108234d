package temporal

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

func wanted() Want {
	return Want{
		Retention: 30 * day, Description: "whose it is", Owner: "sickbay",
		Attributes: Attributes{"SickbayNode": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "SickbayPhase": enumspb.INDEXED_VALUE_TYPE_KEYWORD},
	}
}

func whole() State {
	return State{
		Namespace: "sickbay", Exists: true, Status: enumspb.NAMESPACE_STATE_REGISTERED, Retention: 30 * day,
		Description: "whose it is", Owner: "sickbay", Attributes: wanted().Attributes,
	}
}

func TestWhatANamespaceLacksIsPlannedAndNothingElse(t *testing.T) {
	node := Change{Kind: AddSearchAttribute, Attribute: "SickbayNode", Type: enumspb.INDEXED_VALUE_TYPE_KEYWORD}
	phase := Change{Kind: AddSearchAttribute, Attribute: "SickbayPhase", Type: enumspb.INDEXED_VALUE_TYPE_KEYWORD}
	for what, test := range map[string]struct {
		state func(*State)
		want  func(*Want)
		plan  []Change
		notes int
		err   string
	}{
		"one that has all": {},
		"one that isn't there": {
			state: func(s *State) { *s = State{Namespace: "sickbay"} },
			plan:  []Change{{Kind: CreateNamespace, Retention: 30 * day, Description: "whose it is", Owner: "sickbay"}, node, phase},
		},
		"one without an attribute": {state: func(s *State) {
			s.Attributes = Attributes{"SickbayPhase": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "Other": enumspb.INDEXED_VALUE_TYPE_INT}
		}, plan: []Change{node}},
		"one with an attribute of another type": {
			state: func(s *State) { s.Attributes = Attributes{"SickbayNode": enumspb.INDEXED_VALUE_TYPE_TEXT} },
			plan:  []Change{phase}, err: "search attribute SickbayNode has type Text, and Sickbay writes type Keyword",
		},
		"one that keeps less":                   {state: func(s *State) { s.Retention = day }, plan: []Change{{Kind: SetRetention, Retention: 30 * day, Before: day}}},
		"one that keeps more":                   {state: func(s *State) { s.Retention = 90 * day }, notes: 1},
		"one that keeps more than is asked for": {state: func(s *State) { s.Retention = 90 * day }, want: func(w *Want) { w.Shorten = true }, plan: []Change{{Kind: SetRetention, Retention: 30 * day, Before: 90 * day}}},
		"nobody's":                              {state: func(s *State) { s.Description, s.Owner = "", "" }, plan: []Change{{Kind: SetOwner, Description: "whose it is", Owner: "sickbay"}}},
		"somebody else's":                       {state: func(s *State) { s.Description, s.Owner = "research", "" }},
		"somebody else's, who is named anew":    {state: func(s *State) { s.Owner = "research" }, want: func(w *Want) { w.Renamed = true }, plan: []Change{{Kind: SetOwner, Owner: "sickbay"}}},
		"one on its way out":                    {state: func(s *State) { s.Status = enumspb.NAMESPACE_STATE_DELETED }, err: "namespace sickbay is Deleted; wait until it is gone"},
	} {
		state, want := whole(), wanted()
		if test.state != nil {
			test.state(&state)
		}
		if test.want != nil {
			test.want(&want)
		}
		plan, notes, err := Plan(state, want)
		if !slices.EqualFunc(plan, test.plan, func(a, b Change) bool { return reflect.DeepEqual(a, b) }) || len(notes) != test.notes {
			t.Errorf("%s: %+v, notes %q; want %+v and %d", what, plan, notes, test.plan, test.notes)
		}
		if (err != nil) != (test.err != "") || err != nil && (!strings.Contains(err.Error(), test.err) || !errors.Is(err, ErrNamespace)) {
			t.Errorf("%s: %v, want %q", what, err, test.err)
		}
	}
}

func TestARetentionIsReadAndWrittenInDaysAndHours(t *testing.T) {
	for text, want := range map[string]struct {
		is      time.Duration
		written string
	}{
		"30d": {30 * day, "30d"}, "720h": {30 * day, "30d"}, "1d12h": {36 * time.Hour, "1d12h"}, "90m": {90 * time.Minute, "1h30m"},
		"0.5d": {12 * time.Hour, "12h"}, "36h0m1s": {36*time.Hour + time.Second, "1d12h0m1s"},
	} {
		got, err := ParseRetention(text)
		if err != nil || got != want.is || FormatRetention(got) != want.written {
			t.Errorf("%s is %s, written %s, %v; want %s, %s", text, got, FormatRetention(got), err, want.is, want.written)
		}
	}
	for _, text := range []string{"", "d", "30", "30 d", "-1d", "0d", "0s", "-1h", "1d2d", "40000d", "9e99d", "NaNd", "infd", "30days", "1dd", "soon"} {
		if got, err := ParseRetention(text); err == nil {
			t.Errorf("%q is taken for %s", text, got)
		}
	}
}

package incident_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// U4. Whatever comes, in whatever order: no incident lets more through than its pace
// allows unless an operator said so, none holds past its maximum unless an operator
// said so, alternating levels move neither, it raises one alert at its beginning and
// one for each maximum that it reaches, and it ends when its levels are gone.
func TestNoIncidentEverLetsTooManyThroughOrHoldsForEver(t *testing.T) {
	scopes := []incident.Scope{
		incident.Cluster(), incident.OfDriver(driver), incident.OfNode("node-7"),
		incident.CrowdOfDriver(driver, ""), incident.CrowdOfNode("node-7"),
	}
	rapid.Check(t, func(rt *rapid.T) {
		p := incident.DefaultPolicy()
		scope := rapid.SampledFrom(scopes).Draw(rt, "scope")
		pace, limit := p.Pace, p.Max
		if scope.Kind == incident.Crowd {
			pace = p.CrowdPace
		}
		if scope.Node != "" {
			limit = p.MaxNode
		}
		state, now := incident.Incident{Scope: scope}, start
		var through []time.Time // while nobody admitted all
		waits, maxima := 0, 0
		heldSince := time.Time{}
		began := 0
		decide := func(event incident.Event) incident.Answer {
			before := state.Phase
			var answer incident.Answer
			state, answer = incident.Decide(state, event, now, p)
			content, err := json.Marshal(state)
			if err != nil {
				rt.Fatal(err)
			}
			if len(content) > 32<<10 {
				rt.Fatalf("the state has %d bytes", len(content))
			}
			// What was written down decides as what was in memory.
			state = incident.Incident{}
			if err := json.Unmarshal(content, &state); err != nil {
				rt.Fatal(err)
			}
			for _, n := range state.Notices {
				switch {
				case n.Kind == incident.NoticeBegan && n.Alert:
					began++
				case n.Kind == incident.NoticeAsks && n.Alert:
					maxima++
				}
			}
			state, _ = incident.Decide(state, incident.Announced{UpTo: state.NoticeSeq}, now, p)
			switch {
			case state.Phase != incident.Holding:
				heldSince = time.Time{}
			case before != incident.Holding:
				heldSince = now
			}
			return answer
		}
		levels := func(n int) incident.Levels {
			held := rapid.IntRange(0, n).Draw(rt, "held")
			if scope == incident.CrowdOfNode("node-7") {
				held = 0
			}
			unsure := rapid.SampledFrom([]string{"", "", "it has just begun"}).Draw(rt, "unsure")
			return incident.Levels{Now: n, Held: held, Total: 100, Enough: 16, Begins: true, Unsure: unsure, By: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "starter")}
		}
		decide(incident.Reported{Levels: levels(40)})
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(rt, "seconds")) * time.Second)
			state, _ = incident.Decide(state, incident.Woke{}, now, p)
			most := limit
			if !state.CalmSince.IsZero() {
				// Its levels are low: it may be over before anybody is asked.
				most += p.Calm + time.Minute
			}
			if !heldSince.IsZero() && state.Phase == incident.Holding && now.Sub(heldSince) >= most && waits == 0 {
				rt.Fatalf("it holds since %s, past its maximum", heldSince)
			}
			var answer incident.Answer
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				m := incident.Message{Verb: rapid.SampledFrom(incident.Verbs[:]).Draw(rt, "verb"), Actor: "x", Reason: "x", For: time.Duration(rapid.IntRange(0, 7200).Draw(rt, "for")) * time.Second}
				if incident.Refuse(state, m) == nil && m.Verb == incident.VerbWait {
					waits++
				}
				decide(m)
				continue
			case 1, 2, 3:
				answer = decide(incident.Asked{Device: rapid.StringMatching(`[a-z]`).Draw(rt, "case"), Since: start.Add(-time.Duration(rapid.IntRange(0, 9).Draw(rt, "age")) * time.Minute)})
			default:
				answer = decide(incident.Reported{Levels: levels(rapid.SampledFrom([]int{0, 3, 40, 80}).Draw(rt, "now"))})
			}
			if answer.Through > 1 || answer.Through > 0 && !answer.Holds {
				rt.Fatalf("answered %+v", answer)
			}
			if answer.Holds && answer.Through == 1 {
				through = append(through, now)
			}
			if answer.Holds && answer.Through == 0 && answer.Again <= 0 {
				rt.Fatalf("sent away without a time to come back: %+v", answer)
			}
		}
		for i := 1; i < len(through); i++ {
			if gap := through[i].Sub(through[i-1]); gap < pace {
				rt.Fatalf("two were let through within %s, and the pace is %s", gap, pace)
			}
		}
		if began != 1 {
			rt.Fatalf("%d alerts that it began", began)
		}
		if maxima > waits+1 {
			rt.Fatalf("asked %d times after %d waits", maxima, waits)
		}
		for range 3 {
			decide(incident.Reported{Levels: incident.Levels{Total: 100, Enough: 16, By: "a"}})
			now = now.Add(p.Calm)
		}
		if state.Phase != incident.Closed {
			rt.Fatalf("its levels are gone for %s and it is still %s", 2*p.Calm, state.Phase)
		}
	})
}

// U4. While a storm lasts and nobody speaks, everything that waits gets through in
// the end, whoever else wants to.
func TestWhatWaitsGetsThroughInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := incident.DefaultPolicy()
		state, now := incident.Incident{Scope: incident.OfDriver(driver)}, start
		held, cases := rapid.IntRange(0, 60).Draw(rt, "devices"), rapid.IntRange(0, 60).Draw(rt, "cases")
		again := make([]time.Time, cases)
		report := start
		for now.Before(start.Add(p.Max + 6*time.Duration(held+cases+2)*p.Pace + time.Hour)) {
			var answer incident.Answer
			if !now.Before(report) {
				state, answer = incident.Decide(state, incident.Reported{Levels: incident.Levels{Now: 60, Held: held, Total: 100, Enough: 16, By: "a"}}, now, p)
				held = max(held-answer.Through, 0)
				report = now.Add(min(15*time.Second, max(answer.Again, time.Second)))
			}
			for i := range again {
				if again[i].IsZero() || !now.Before(again[i]) && again[i] != start.Add(-time.Hour) {
					state, answer = incident.Decide(state, incident.Asked{Device: fmt.Sprintf("gpu-%d", i), Since: start.Add(-time.Duration(i) * time.Second)}, now, p)
					again[i] = now.Add(answer.Again)
					if answer.Granted() {
						again[i] = start.Add(-time.Hour) // done
						cases--
					}
				}
			}
			now = now.Add(5 * time.Second)
		}
		if held > 0 || cases > 0 {
			rt.Fatalf("%d devices and %d cases still wait after %s", held, cases, now.Sub(start))
		}
	})
}

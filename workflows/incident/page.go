package incident

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// This file writes an incident's page in Temporal's UI, its current details: for
// somebody who was woken up and knows neither the code nor the words of
// docs/operating.md.

// The search attributes that an incident has; they are those of cases.
var (
	attributeNode   = temporal.NewSearchAttributeKeyKeyword("SickbayNode")
	attributeDriver = temporal.NewSearchAttributeKeyKeyword("SickbayDriver")
	attributePhase  = temporal.NewSearchAttributeKeyKeyword("SickbayPhase")
)

// show writes what people see of the incident in Temporal's UI.
func (r *runner) show() {
	workflow.SetCurrentDetails(r.ctx, Details(r.Incident))
	if !r.knobs.SearchAttributes || r.Incident.Phase == r.shown || r.Incident.Phase == incident.PhaseNone {
		return
	}
	r.shown = r.Incident.Phase
	updates := []temporal.SearchAttributeUpdate{attributePhase.ValueSet(string(r.shown))}
	if node := r.Incident.Scope.Node; node != "" {
		updates = append(updates, attributeNode.ValueSet(node))
	}
	if driver := r.Incident.Scope.Driver; driver != "" {
		updates = append(updates, attributeDriver.ValueSet(driver))
	}
	if err := workflow.UpsertTypedSearchAttributes(r.ctx, updates...); err != nil {
		r.log.Error("search attributes not written", "error", err)
	}
}

// Details is the incident in Markdown: what happened where, since when, what waits
// for it, what happens next and when, what a person can do, and what was decided.
func Details(i incident.Incident) string {
	if i.Phase == incident.PhaseNone {
		return "No incident."
	}
	var p page
	p.heading(title(i))
	p.line("Where", "`%s`", i.Scope)
	p.line("Now", "%d of %d devices there are %s, on %d nodes; at most there were %d", i.Levels.Now, i.Levels.Total, incident.What(i.Scope.Kind), i.Levels.Nodes, i.Most)
	if len(i.Levels.Sample) > 0 && i.Open() {
		p.line("Some of them", "`%s`", strings.Join(i.Levels.Sample, "`, `"))
	}
	p.line("Since", "%s, the first of them since %s", moment(i.Since), moment(i.Levels.Oldest))
	p.line("Next", "%s", Next(i))
	for _, w := range i.Words {
		p.line("Operator said", "`%s` at %s by %s: %s", w.Verb, moment(w.At), inline(w.Actor), inline(w.Reason))
	}
	if i.Open() {
		p.heading("What you can do")
		for _, advice := range advise(i) {
			p.item("%s", advice)
		}
		p.messages(i)
	}
	p.heading("On record")
	p.line("Phase", "%s", i.Phase)
	p.line("Waiting", "%d devices without a case in the starter", i.Levels.Held)
	p.line("Let through", "%d devices to get a case, %d cases to restrict theirs", i.Opened, i.Granted)
	p.line("Last report", "%s by starter `%s`", moment(i.ReportedAt), i.Levels.By)
	for _, n := range i.Story {
		p.line(moment(n.At), "%s", inline(n.Text))
	}
	return p.String()
}

// page is a text in Markdown that grows.
type page struct{ strings.Builder }

func (p *page) heading(text string) {
	if p.Len() > 0 {
		p.WriteString("\n")
	}
	fmt.Fprintf(p, "### %s\n\n", text)
}

func (p *page) item(format string, args ...any) {
	fmt.Fprintf(p, "- %s\n", fmt.Sprintf(format, args...))
}

func (p *page) line(name, format string, args ...any) {
	p.item("**%s:** %s", name, fmt.Sprintf(format, args...))
}

// messages lists what the incident takes from an operator now, and how to send it.
func (p *page) messages(i incident.Incident) {
	taken := false
	for _, verb := range incident.Verbs {
		if incident.Refuse(i, incident.Message{Verb: verb, Actor: "sickbay", Reason: "to see whether it would be taken"}) == nil {
			p.item("Send `%s`: %s", verb, describeVerb(verb))
			taken = true
		}
	}
	if taken {
		p.item("To send: More Actions, Send an Update, with `{\"actor\":\"you@example.com\",\"reason\":\"why\"}` as data, or `sickbay incident wait|admit|close %s --reason why`.", i.Scope)
	}
}

func title(i incident.Incident) string {
	switch i.Phase {
	case incident.Holding:
		return fmt.Sprintf("Many devices %s at once: all of them wait", incident.What(i.Scope.Kind))
	case incident.Pacing:
		return fmt.Sprintf("Many devices %s at once: let through one by one. Is that right?", incident.What(i.Scope.Kind))
	case incident.Admitted:
		return fmt.Sprintf("Many devices %s at once: an operator let all through", incident.What(i.Scope.Kind))
	case incident.Noted:
		return "Many devices of one node Unhealthy at once: one fault of the node, perhaps"
	case incident.Closed:
		if i.End == incident.EndOperator {
			return "Over: an operator closed it"
		}
		return "Over: its devices are well, or have cases of their own"
	}
	return string(i.Phase)
}

// Next says what happens next, and when or by whom.
func Next(i incident.Incident) string {
	if !i.CalmSince.IsZero() && i.Open() {
		return fmt.Sprintf("it is over soon: since %s too few of its devices are left for an incident", moment(i.CalmSince))
	}
	switch i.Phase {
	case incident.Holding:
		return fmt.Sprintf("its devices are well again, or one by one is let through from %s on", moment(i.Until))
	case incident.Pacing:
		return fmt.Sprintf("the next one is let through from %s on; an operator says whether that is right", moment(i.NextAt))
	case incident.Admitted, incident.Noted:
		return "its devices go on as ever; it ends when they are well"
	case incident.Closed:
		return fmt.Sprintf("nothing; it was over at %s", moment(i.Ended))
	}
	return "the first report"
}

func advise(i incident.Incident) []string {
	var look string
	switch {
	case i.Scope.Node != "":
		look = fmt.Sprintf("Look at node `%s`: its kubelet, its drivers' Pods and what they say.", i.Scope.Node)
	case i.Scope.Driver != "":
		look = fmt.Sprintf("Look at `%s`: is it being upgraded, are its Pods up, what do they say?", i.Scope.Driver)
	default:
		look = "Look at what all nodes share: the API server, the network, a rollout of kubelets or drivers."
	}
	if i.Phase == incident.Noted {
		return []string{look, "An error that names no card condemns them all: find out which it was. Each stays marked until it is proven healthy."}
	}
	if i.Scope.Kind == incident.Crowd {
		return []string{look, "If the faults are real, let all be marked. If they aren't, stop what causes them first."}
	}
	return []string{look, "Nothing has to be done to the devices: none is restricted, and no Pod is touched."}
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

// inline keeps a foreign text from being taken for Markdown.
func inline(text string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(text, "`", "'"), "\n", " ") + "`"
}

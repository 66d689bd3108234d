package incident

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/workflows/markdown"
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
	var p markdown.Page
	p.Heading(title(i))
	p.Line("Where", "`%s`", i.Scope)
	p.Line("Now", "%d of %d devices there are %s, on %d nodes; at most there were %d", i.Levels.Now, i.Levels.Total, incident.What(i.Scope.Kind), i.Levels.Nodes, i.Most)
	if len(i.Levels.Sample) > 0 && i.Open() {
		p.Line("Some of them", "`%s`", strings.Join(i.Levels.Sample, "`, `"))
	}
	p.Line("Since", "%s, the first of them since %s", markdown.Moment(i.Since), markdown.Moment(i.Levels.Oldest))
	p.Line("Next", "%s", Next(i))
	for _, w := range i.Words {
		p.Line("Operator said", "`%s` at %s by %s: %s", w.Verb, markdown.Moment(w.At), markdown.Inline(w.Actor), markdown.Inline(w.Reason))
	}
	if i.Open() {
		p.Heading("What you can do")
		for _, advice := range advise(i) {
			p.Item("%s", advice)
		}
		messages(&p, i)
	}
	p.Heading("On record")
	p.Line("Phase", "%s", i.Phase)
	p.Line("Waiting", "%d devices without a case in the starter", i.Levels.Held)
	p.Line("Let through", "%d devices to get a case, %d cases to restrict theirs", i.Opened, i.Granted)
	p.Line("Last report", "%s by starter `%s`", markdown.Moment(i.ReportedAt), i.Levels.By)
	if i.Levels.Unsure != "" && i.Open() {
		p.Line("Not sure", "there may be more: %s. It doesn't end by such a count", markdown.Inline(i.Levels.Unsure))
	}
	for _, n := range i.Story {
		p.Line(markdown.Moment(n.At), "%s", markdown.Inline(n.Text))
	}
	return p.String()
}

// messages lists what the incident takes from an operator now, and how to send it.
func messages(p *markdown.Page, i incident.Incident) {
	taken := false
	for _, verb := range incident.Verbs {
		if incident.Refuse(i, incident.Message{Verb: verb, Actor: "sickbay", Reason: "to see whether it would be taken"}) == nil {
			p.Item("Send `%s`: %s", verb, describeVerb(verb))
			taken = true
		}
	}
	if taken {
		p.Item("To send: More Actions, Send an Update, with `{\"actor\":\"you@example.com\",\"reason\":\"why\"}` as data, or `sickbay incident wait|admit|close %s --reason why`.", i.Scope)
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
		return fmt.Sprintf("it is over soon: since %s too few of its devices are left for an incident", markdown.Moment(i.CalmSince))
	}
	switch i.Phase {
	case incident.Holding:
		return fmt.Sprintf("its devices are well again, or one by one is let through from %s on", markdown.Moment(i.Until))
	case incident.Pacing:
		if i.Levels.Held == 0 && len(i.Waiting) == 0 {
			return "who wants to be let through is, one by one; nobody waits now"
		}
		return fmt.Sprintf("the next one is let through from %s on; an operator says whether that is right", markdown.Moment(i.NextAt))
	case incident.Admitted, incident.Noted:
		return "its devices go on as ever; it ends when they are well"
	case incident.Closed:
		return fmt.Sprintf("nothing; it was over at %s", markdown.Moment(i.Ended))
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

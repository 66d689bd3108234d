package node

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/workflows/markdown"
)

// This file writes a node's page in Temporal's UI, its current details: for somebody who
// was woken up and knows neither the code nor the words of docs/operating.md.

// The search attributes that it has; they are those of cases.
var (
	attributeNode  = temporal.NewSearchAttributeKeyKeyword("SickbayNode")
	attributePhase = temporal.NewSearchAttributeKeyKeyword("SickbayPhase")
)

// show writes what people see of it in Temporal's UI.
func (r *runner) show() {
	workflow.SetCurrentDetails(r.ctx, Details(r.Isolation))
	if !r.knobs.SearchAttributes || r.Isolation.Phase == r.shown || r.Isolation.Phase == isolation.PhaseNone {
		return
	}
	r.shown = r.Isolation.Phase
	err := workflow.UpsertTypedSearchAttributes(r.ctx, attributePhase.ValueSet(string(r.shown)), attributeNode.ValueSet(r.Isolation.Node))
	if err != nil {
		r.log.Error("search attributes not written", "error", err)
	}
}

// Details is it in Markdown: whether the node is kept out, since when and why, what
// happens next, what a person can do, and what was decided.
func Details(i isolation.Isolation) string {
	if i.Phase == isolation.PhaseNone {
		return "Nothing isolates the node."
	}
	var p markdown.Page
	p.Heading(title(i))
	p.Line("Node", "`%s`", i.Node)
	if i.Ground.Text != "" {
		p.Line("Why", "%s", markdown.Inline(i.Ground.Text))
	}
	p.Line("Since", "%s", markdown.Moment(i.Since))
	if i.Mark.Way != "" {
		p.Line("Kept out", "by a %s of Sickbay's, since %s", i.Mark.Way, markdown.Moment(i.Mark.Since))
	}
	p.Line("Next", "%s", Next(i))
	for _, w := range i.Words {
		p.Line("Operator said", "`%s` at %s by %s: %s", w.Verb, markdown.Moment(w.At), markdown.Inline(w.Actor), markdown.Inline(w.Reason))
	}
	if i.Open() {
		p.Heading("What you can do")
		if len(i.Ground.Devices) > 0 {
			p.Item("See the cases of its devices: `device/%s`", strings.Join(i.Ground.Devices, "`, `device/"))
		}
		if i.Waiting == isolation.WaitsPermit {
			p.Item("`sickbay budgets` tells what is used of which limit; a policy raises one.")
		}
		if i.Phase != isolation.Spared {
			p.Item("Send `%s`: %s", isolation.VerbLift, describeVerb(isolation.VerbLift))
			p.Item("To send: More Actions, Send an Update, with `{\"actor\":\"you@example.com\",\"reason\":\"why\",\"for\":\"4h\"}` as data; `for` may be left out.")
		}
	}
	p.Heading("On record")
	p.Line("Phase", "%s", i.Phase)
	p.Line("Devices", "%d on the node, %d known to be faulty", i.Levels.Total, i.Levels.FaultyCount)
	p.Line("Last report", "%s by starter `%s`", markdown.Moment(i.ReportedAt), i.Levels.By)
	p.Line("Last look", "%s", markdown.Moment(i.LookedAt))
	for _, n := range i.Story {
		p.Line(markdown.Moment(n.At), "%s", markdown.Inline(n.Text))
	}
	return p.String()
}

func title(i isolation.Isolation) string {
	switch {
	case i.Phase == isolation.Closed:
		return "Over: nothing isolates the node"
	case i.Phase == isolation.Spared:
		return "An operator had the node given back"
	case i.Phase == isolation.Observed:
		return "The node would be isolated; mode observe does nothing"
	case i.InForce():
		return "The node is isolated: nothing new is scheduled there"
	case i.Waiting == isolation.WaitsOthers:
		return "The node is kept out by somebody else"
	case i.Waiting != "":
		return "The node is not isolated yet"
	}
	return "The node is looked at"
}

// Next says what happens next, in one sentence.
func Next(i isolation.Isolation) string {
	switch {
	case i.Phase == isolation.Closed:
		return "nothing; it is over (" + string(i.End) + ")"
	case i.Detail != "":
		return i.Detail + " (" + again(i) + ")"
	case i.Lifting:
		return "it is given back"
	case i.Phase == isolation.Spared && !i.SparedUntil.IsZero():
		return "it is left alone until " + markdown.Moment(i.SparedUntil)
	case i.Phase == isolation.Spared:
		return "it is left alone until nothing justifies to isolate it any more"
	case !i.UnjustifiedSince.IsZero():
		return "nothing has justified it since " + markdown.Moment(i.UnjustifiedSince) + "; it is given back if that lasts (" + again(i) + ")"
	}
	return again(i)
}

func again(i isolation.Isolation) string {
	at := i.LookAt
	if i.RetryAt.After(time.Time{}) && i.RetryAt.Before(at) {
		at = i.RetryAt
	}
	return fmt.Sprintf("it is looked at again at %s", markdown.Moment(at))
}

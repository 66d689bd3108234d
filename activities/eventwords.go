package activities

// This file says what a Kubernetes Event tells of a decision. It is made of
// Sickbay's own words and codes alone: what drivers, API servers and people wrote
// can hold anything, and a Pod's Events are read by its tenant.

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// maxEvent bounds an Event's message; the API server takes 1,024 bytes.
const maxEvent = 1000

// eventWords are what an Event says of each kind of decision.
var eventWords = map[quarantine.NoticeKind]string{
	quarantine.NoticeOpened:       "a case was opened",
	quarantine.NoticePhase:        "its case goes on",
	quarantine.NoticeSeverity:     "it is worse than was known",
	quarantine.NoticeMarkInForce:  "a mark keeps it out of new allocations",
	quarantine.NoticeMarkRestored: "its mark was removed or changed from outside while its case is open",
	quarantine.NoticeMarkRefused:  "its mark could not be written",
	quarantine.NoticeMarkHeld:     "it is NOT kept out yet: there is no permit for its mark now",
	quarantine.NoticeMarkLifted:   "its mark was removed",
	quarantine.NoticeAdvisory:     "it is faulty and can't be kept out",
	quarantine.NoticeExtended:     "it stays out: the lease of its record was extended",
	quarantine.NoticeGraceHalf:    "half of its grace window is over and it is still not known to be healthy",
	quarantine.NoticeHeld:         "it is not restricted now: it is a part of an incident",
	quarantine.NoticeNodeOut:      "its node is out, and nothing is judged until it returns",
	quarantine.NoticeNodeBack:     "its node is back, and it is read anew",
	quarantine.NoticeGraceOver:    "it is still not known to be healthy at the end of its grace window",
	quarantine.NoticeReplaced:     "new hardware is in its place",
	quarantine.NoticeMoved:        "its hardware is listed under another name",
	quarantine.NoticeMessage:      "an operator's message was taken",
	quarantine.NoticeRefused:      "an operator's message was refused",
	quarantine.NoticeGate:         "a gate on its way back was passed, or can't be tried",
	quarantine.NoticeAttempt:      "an attempt to prove it healthy ended, and it stays out",
	quarantine.NoticeReleased:     "it was proven healthy and given back",
	quarantine.NoticeRelapse:      "it is bad again soon after it was given back",
	quarantine.NoticeClosed:       "its case is over",
}

// eventOf is the Event of a decision: its type, its reason and its message.
func eventOf(key device.Key, n quarantine.Notice) (kind, reason, message string) {
	kind = corev1.EventTypeNormal
	if n.Alert {
		kind = corev1.EventTypeWarning
	}
	what := eventWords[n.Kind]
	if what == "" {
		what = "something was decided"
	}
	state := string(n.Phase)
	if n.Reason != "" {
		state += ", " + n.Reason
	}
	if n.Severity != "" {
		state += " (" + n.Severity + ")"
	}
	if n.Gate != "" {
		what += ", because it would skip gate " + string(n.Gate)
	}
	message = fmt.Sprintf("device %s: %s; %s", key, what, state)
	if len(message) > maxEvent {
		message = message[:maxEvent]
	}
	return kind, string(n.Kind), message
}

// incidentWords are what an Event says of each kind of decision about an incident.
var incidentWords = map[incident.NoticeKind]string{
	incident.NoticeBegan:     "many of its devices changed at once; that is taken for one incident",
	incident.NoticeAsks:      "an incident has held for its maximum; its devices are let through one by one",
	incident.NoticeGrew:      "a new wave of its devices came; they are let through one by one",
	incident.NoticeTakenOver: "an incident goes on under another starter",
	incident.NoticeMessage:   "an operator's message to an incident was taken",
	incident.NoticeRefused:   "an operator's message to an incident was refused",
	incident.NoticeClosed:    "an incident is over",
}

// eventOfIncident is the Event of a decision about an incident on a node.
func eventOfIncident(node string, n incident.Notice) (kind, reason, message string) {
	kind = corev1.EventTypeNormal
	if n.Alert {
		kind = corev1.EventTypeWarning
	}
	what := incidentWords[n.Kind]
	if what == "" {
		what = "something was decided about an incident"
	}
	return kind, string(n.Kind), fmt.Sprintf("node %s: %s; %s, %d devices", node, what, n.Phase, n.Devices)
}

// Kinds are the kinds of decisions about devices, incidents and nodes, sorted; they are the
// reasons of Events.
func Kinds() []string {
	var all []string
	for kind := range eventWords {
		all = append(all, string(kind))
	}
	for kind := range incidentWords {
		all = append(all, string(kind))
	}
	for _, kind := range budget.NoticeKinds() {
		all = append(all, string(kind))
	}
	for kind := range nodeWords {
		all = append(all, string(kind))
	}
	slices.Sort(all)
	return all
}

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

const worker = "system:serviceaccount:sickbay:sickbay-worker"

// Each thing that must not be is named, and what is as it should be isn't. Proves a
// part of Q3.
func TestCallsAreHeldToWhatIsGranted(t *testing.T) {
	get := stack.Kind{User: worker, Agent: "sickbay-worker", Verb: "get", Resource: "pods", Namespace: "default", Code: 200}
	lease := stack.Kind{User: worker, Agent: "sickbay-worker", Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "sickbay", Code: 200}
	granted := deploy.Grants{worker: {
		{Resource: "pods", Verb: "get"}: true,
		{Group: "coordination.k8s.io", Resource: "leases", Namespace: "sickbay", Name: "sickbay-starter", Verb: "update"}: true,
	}}
	with := func(kind stack.Kind, change func(*stack.Kind)) stack.Kind {
		change(&kind)
		return kind
	}
	for sentence, c := range map[string]struct {
		calls   []stack.Kind
		partial bool
		want    []string
	}{
		"all is used and nothing more": {calls: []stack.Kind{get, lease}},
		"a right is never used":        {calls: []stack.Kind{get}, want: []string{"may update leases.coordination.k8s.io sickbay-starter in sickbay, and never did"}},
		"a part of the tests ran":      {calls: []stack.Kind{get}, partial: true},
		"a call is refused": {
			calls: []stack.Kind{get, lease, with(get, func(k *stack.Kind) { k.Verb, k.Code = "list", 403 })},
			want:  []string{"refused"},
		},
		"a right counts as used only where it was granted": {
			calls: []stack.Kind{get, with(lease, func(k *stack.Kind) { k.Namespace = "default" })},
			want:  []string{"no right that is shipped", "never did"},
		},
		"the status of a Pod is written": {
			calls: []stack.Kind{get, lease, with(get, func(k *stack.Kind) { k.Verb, k.Subresource = "patch", "status" })},
			want:  []string{"writes a subresource", "no right that is shipped"},
		},
		"a worker runs as an administrator": {
			calls: []stack.Kind{get, lease, with(get, func(k *stack.Kind) { k.User = "admin" })},
			want:  []string{"an administrator's call"},
		},
		"a worker runs as a user that a test made": {
			calls: []stack.Kind{get, lease, with(get, func(k *stack.Kind) { k.User, k.Code = "bare-worker", 403 })},
		},
		"a process asks what it may, and tries whether it is bounded": {
			calls: []stack.Kind{get, lease,
				with(get, func(k *stack.Kind) {
					k.Verb, k.Group, k.Resource, k.Code = "create", authorization, "selfsubjectaccessreviews", 201
				}),
				with(get, func(k *stack.Kind) {
					k.Verb, k.Group, k.Resource, k.Code, k.DryRun = "create", "resource.k8s.io", "devicetaintrules", 403, true
				}),
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var calls []stack.Counted
			for _, kind := range c.calls {
				calls = append(calls, stack.Counted{Kind: kind, Count: 1})
			}
			complaints := compare(granted, calls, c.partial)
			matches := func(complaint, want string) bool { return strings.Contains(complaint, want) }
			if !slices.EqualFunc(complaints, c.want, matches) {
				t.Errorf("complaints %q, want %q", complaints, c.want)
			}
		})
	}
}

package e2e

// This file compares the rights that are shipped with the calls that are made.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// rare tells what needs a right that the scenario below doesn't.
func rare(rights deploy.RightSet, right deploy.Right) (why string) {
	watched := right
	watched.Verb = "watch"
	switch {
	case right == deploy.Right{Resource: "events", Verb: "patch"}:
		return "a decision that is like an earlier one: its Event is counted"
	case right == deploy.Right{Resource: "pods", Verb: "get"}:
		return "a Pod that is gone from the lists before a look has found it ended"
	case right.Resource == "configmaps" && right.Verb != "get":
		return "a starter that has led for 10 s, and news a minute later"
	case right.Namespace == probes:
		return "an attempt to prove a device healthy, which recovery_test.go makes"
	case right.Verb == "list" && rights[watched]:
		return "an API server that can't begin a watch with a list (WatchList)"
	}
	return ""
}

// A whole case, from the fault to the end of its mark, with just the rights in
// deploy: nothing is refused, nothing is granted that isn't used, and
// the status of a Pod is neither written nor may it be. Proves Q3.
func TestTheShippedRightsAreThoseThatAreUsed(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 3)
	c.process("worker", "worker", "", append(fastEnvironment(), "SICKBAY_FORGET=3s")...)
	c.process("starter", "starter", "", starterEnvironment()...)

	key := c.runPod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, "XID 48: double bit ECC error")
	state := c.awaitInForce(key)
	c.deleteRule(state.Mark.Name)
	c.awaitCase(key, "restored", func(s quarantine.Case) error {
		if s.Mark.Restored != 1 || s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("mark %+v", s.Mark)
		}
		return nil
	})
	// A graver reason is written into the same mark, and its holder is looked for.
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitCase(key, "graver", func(s quarantine.Case) error {
		if s.Reason.Rule != "nvidia/xid-79" || s.Mark.State != quarantine.MarkInForce || s.Mark.Written != s.Mark.Revision || len(s.Holders) != 1 {
			return fmt.Errorf("%s, mark %+v, holders %v", s.Reason.Rule, s.Mark, s.Holders)
		}
		return nil
	})
	// Its holder leaves while no starter runs to tell of it: a look has to find out.
	if err := c.stack.StopPart(t.Context(), "starter"); err != nil {
		t.Fatal(err)
	}
	c.deletePod("train-0")
	// What is told of another epoch's mark changes nothing but that the case looks.
	if err := c.cases.Tell(t.Context(), key, quarantine.MarkSeen{Node: "node-0", Mark: quarantine.MarkFound{Name: state.Mark.Name, Epoch: 1}}, ""); err != nil {
		t.Fatal(err)
	}
	c.awaitCase(key, "free", func(s quarantine.Case) error {
		if s.Held() {
			return fmt.Errorf("held by %v, reports %+v", s.Holders, s.Reports)
		}
		return nil
	})
	if err := c.stack.StartPart(t.Context(), "starter"); err != nil {
		t.Fatal(err)
	}
	// The card is taken out for good, and its mark goes.
	if _, err := c.nodes.RemoveDevice(t.Context(), key.Pool, key.Device); err != nil {
		t.Fatal(err)
	}
	c.eventually("the mark is lifted", 40*time.Second, func(ctx context.Context) error {
		rules, err := c.rules(ctx)
		if err == nil && len(rules) != 0 {
			state, stateErr := c.cases.State(ctx, key)
			err = fmt.Errorf("%d marks; %s %s, mark %s (%w)", len(rules), state.Case.Phase, state.Case.Waiting, state.Case.Mark.State, stateErr)
		}
		return err
	})
	if err := errors.Join(c.stack.StopPart(t.Context(), "starter"), c.stack.StopPart(t.Context(), "worker")); err != nil {
		t.Fatal(err)
	}

	for user, rights := range c.accounts.Granted {
		made, err := c.stack.Calls(user)
		if err != nil {
			t.Fatal(err)
		}
		if len(made) == 0 {
			t.Errorf("the audit log has no call of %s: nothing is compared", user)
		}
		used := deploy.RightSet{}
		for _, made := range made {
			if made.Writes() && made.Subresource != "" {
				t.Errorf("%s writes a subresource: %s", user, made)
			}
			// A worker tries whether the policy holds it to marks.
			if made.Code == http.StatusForbidden && !made.DryRun {
				t.Errorf("%s lacks the right to %s: %s", user, made, made.Message)
			}
			for _, namespace := range []string{"", made.Namespace} {
				for _, name := range []string{"", made.Name} {
					used[deploy.Right{
						Group: made.APIGroup, Resource: made.Resource, Subresource: made.Subresource,
						Namespace: namespace, Name: name, Verb: made.Verb,
					}] = true
				}
			}
		}
		for _, right := range rights.Sorted() {
			if right.Subresource != "" || right.Verb == "*" || right.Resource == "*" || right.Group == "*" {
				t.Errorf("%s may %s: nothing needs a subresource or everything", user, right)
			}
			if !used[right] && rare(rights, right) == "" {
				t.Errorf("%s may %s and never does", user, right)
			}
		}
	}
}

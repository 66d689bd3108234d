package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// authorization is the group of the reviews by which a process asks for its own
// rights: everybody who is authenticated may, by Kubernetes' own system:basic-user.
const authorization = "authorization.k8s.io"

// accounts are those that the processes have, by what their programs call themselves.
var accounts = map[string]string{
	"sickbay-starter": "system:serviceaccount:sickbay:sickbay-starter",
	"sickbay-worker":  "system:serviceaccount:sickbay:sickbay-worker",
}

// compare holds calls to what is granted.
func compare(granted deploy.Grants, calls []stack.Counted, partial bool) (complaints []string) {
	complain := func(c stack.Counted, format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf("%s (%s) %s: %d times, code %d: %s",
			c.User, c.Agent, rightOf(c.Kind), c.Count, c.Code, fmt.Sprintf(format, args...)))
	}
	used := map[string]deploy.RightSet{}
	for _, c := range calls {
		if want := accounts[c.Agent]; want != "" && want != c.User && administers(c.User) {
			complain(c, "it is an administrator's call; the process has the account %s", want)
			continue
		}
		rights, ours := granted[c.User]
		if !ours || c.Group == authorization {
			continue // a test's own user, with rights that it gave or took away
		}
		right := rightOf(c.Kind)
		switch {
		case c.Code == http.StatusForbidden && c.DryRun:
			continue // a process that tries whether it is bounded
		case c.Code == http.StatusForbidden || c.Code == http.StatusUnauthorized:
			complain(c, "refused: %s", c.Message)
			continue
		case c.Subresource != "" && stack.Call{Verb: c.Verb}.Writes():
			complain(c, "nothing of Sickbay's writes a subresource")
		}
		covered := covering(rights, right)
		if len(covered) == 0 {
			complain(c, "it was let through, and no right that is shipped says so")
		}
		if used[c.User] == nil {
			used[c.User] = deploy.RightSet{}
		}
		for _, right := range covered {
			used[c.User][right] = true
		}
	}
	if partial {
		return complaints
	}
	for _, user := range slices.Sorted(maps.Keys(granted)) {
		for _, right := range granted[user].Sorted() {
			if !used[user][right] {
				complaints = append(complaints, fmt.Sprintf("%s may %s, and never did", user, right))
			}
		}
	}
	return complaints
}

// administers tells whether a user may do everything.
func administers(user string) bool { return user == "admin" || user == stack.SimulatorUser }

func rightOf(k stack.Kind) deploy.Right {
	return deploy.Right{Group: k.Group, Resource: k.Resource, Subresource: k.Subresource, Namespace: k.Namespace, Verb: k.Verb}
}

// covering are the rights that allow a call, whatever the name of its object.
func covering(rights deploy.RightSet, call deploy.Right) (covered []deploy.Right) {
	for right := range rights {
		nameless := right
		nameless.Name = ""
		everywhere := call
		everywhere.Namespace = ""
		if nameless == call || nameless == everywhere {
			covered = append(covered, right)
		}
	}
	return covered
}

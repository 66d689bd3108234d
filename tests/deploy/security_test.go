package deploy_test

// This file holds docs/security.md to the manifests and to the tests that it names.

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/checks"
	"github.com/sickbay-dev/sickbay/tests/deploy"
)

var update = flag.Bool("update", false, "write the rights in deploy/ into docs/security.md")

const (
	rightsBegin = "<!-- rights: go -C tests test ./deploy -update -->\n"
	rightsEnd   = "<!-- end -->\n"
)

func securityPage(t *testing.T) (path, text string) {
	t.Helper()
	root, err := checks.Root()
	must(t, err)
	path = filepath.Join(root, "docs", "security.md")
	content, err := os.ReadFile(path)
	must(t, err)
	return path, string(content)
}

// The page lists every right that is shipped, and none that isn't. Proves a part of Q3.
func TestTheSecurityPageListsTheRightsThatAreShipped(t *testing.T) {
	path, text := securityPage(t)
	head, rest, found := strings.Cut(text, rightsBegin)
	table, tail, ended := strings.Cut(rest, rightsEnd)
	if !found || !ended {
		t.Fatalf("%s has no %s… %s", path, rightsBegin, rightsEnd)
	}
	want := rightsTable(t)
	if table == want {
		return
	}
	if !*update {
		t.Fatalf("%s lists\n%s\ndeploy has\n%s\ngo -C tests test ./deploy -update writes it anew", path, table, want)
	}
	must(t, os.WriteFile(path, []byte(head+rightsBegin+want+rightsEnd+tail), 0o644))
}

// rightsTable has a row for what an account may do with resources of a group alike.
func rightsTable(t *testing.T) string {
	t.Helper()
	rights := func(components ...string) deploy.Grants {
		objects, err := deploy.Rights(t.Context(), deploy.Overlay{Components: components})
		must(t, err)
		granted, err := deploy.GrantsOf(objects)
		must(t, err)
		viewer, err := deploy.RoleRights(objects, "sickbay-viewer")
		must(t, err)
		granted["sickbay-viewer"] = viewer
		return granted
	}
	observing, enforcing, isolating := rights(), rights(deploy.Enforce), rights(deploy.NodeIsolation)
	whole := rights(deploy.Enforce, deploy.Watch, deploy.NodeIsolation)
	type row struct{ who, group, where, verbs string }
	resources := map[row][]string{}
	var rows []row
	for who, set := range whole {
		type place struct {
			on   deploy.Right
			with string
		}
		verbs := map[place][]string{}
		for _, right := range set.Sorted() {
			at := place{on: right}
			switch {
			case !observing[who][right] && enforcing[who][right]:
				at.with = deploy.Enforce
			case !observing[who][right] && isolating[who][right]:
				at.with = deploy.NodeIsolation
			case !observing[who][right]:
				at.with = deploy.Watch
			}
			at.on.Verb = ""
			verbs[at] = append(verbs[at], right.Verb)
		}
		for at, verbs := range verbs {
			resource := at.on.Resource
			if at.on.Subresource != "" {
				resource += "/" + at.on.Subresource
			}
			where := "everywhere"
			if at.on.Namespace != "" {
				where = "in " + at.on.Namespace
			}
			if at.on.Name != "" {
				where += ", only `" + at.on.Name + "`"
			}
			if at.with != "" {
				where += ", *with " + at.with + "*"
			}
			group := at.on.Group
			if group == "" {
				group = "core"
			}
			r := row{who[strings.LastIndex(who, ":")+1:], group, where, strings.Join(verbs, ", ")}
			if resources[r] == nil {
				rows = append(rows, r)
			}
			resources[r] = append(resources[r], resource)
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	var table strings.Builder
	table.WriteString("| account | API group | resources | where | verbs |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		slices.Sort(resources[r])
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", r.who, r.group, strings.Join(resources[r], ", "), r.where, r.verbs)
	}
	return table.String()
}

var testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")

// Each test that the page leans on is there, and each row of its tables of who can do
// what says what holds it, or that nothing does.
func TestTheSecurityPageLeansOnTestsThatExist(t *testing.T) {
	_, text := securityPage(t)
	root, err := checks.Root()
	must(t, err)
	tests, err := checks.FindTests(root)
	must(t, err)
	there := map[string]bool{}
	for _, test := range tests {
		there[test.Name] = true
	}
	named := testName.FindAllStringSubmatch(text, -1)
	if len(named) == 0 {
		t.Fatal("the page names no test")
	}
	for _, name := range named {
		if !there[name[1]] {
			t.Errorf("the page leans on %s, which isn't there", name[1])
		}
	}
	_, claims, found := strings.Cut(text, "## What somebody in bad hands can do")
	if !found {
		t.Fatal("the page has no part on what somebody in bad hands can do")
	}
	for line := range strings.Lines(claims) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 2 || strings.Contains(cells[0], "it can") || strings.Contains(line, "---") {
			continue
		}
		if cannot := cells[1]; !testName.MatchString(cannot) && !strings.Contains(cannot, "**not enforced**") && !strings.Contains(cannot, "API server") {
			t.Errorf("nothing is named that holds %q, and it isn't said that nothing does", cannot)
		}
	}
}

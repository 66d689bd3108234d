package activities

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// kinds are all kinds of decisions that pkg/quarantine declares.
func kinds(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../pkg/quarantine/notice.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "NoticeKind" {
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, word)
		}
		return true
	})
	if len(found) < 10 {
		t.Fatalf("found only %v", found)
	}
	return found
}

func TestEveryDecisionHasAnEventWhoseReasonIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	all := kinds(t)
	for _, kind := range all {
		words := eventWords[quarantine.NoticeKind(kind)]
		if words == "" {
			t.Errorf("an Event has no words for %s", kind)
		}
		if row := "| `" + kind + "` | " + words + " |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/audit.md lacks the row %q", row)
		}
	}
	if len(eventWords) != len(all) {
		t.Errorf("%d kinds have words, and there are %d", len(eventWords), len(all))
	}
}

func TestAnEventNeverRepeatsWhatPeopleOrDriversWrote(t *testing.T) {
	key, err := device.NewDRA("gpu.example.com", "node-0", "gpu-0")
	if err != nil {
		t.Fatal(err)
	}
	const secret = "hunter2"
	for _, kind := range append(kinds(t), "SomethingNew") {
		_, reason, message := eventOf(key, quarantine.Notice{
			Seq: 3, At: time.Unix(1, 0), Kind: quarantine.NoticeKind(kind), Phase: quarantine.PhaseQuarantined, Reason: "XidFallenOffBus",
			Severity: "fatal", Actor: secret, Seen: secret, Text: secret, Rule: secret,
		})
		if strings.Contains(reason+message, secret) {
			t.Errorf("%s says %q", kind, message)
		}
		if reason != kind || !strings.Contains(message, key.String()) || !strings.Contains(message, "Quarantined, XidFallenOffBus (fatal)") {
			t.Errorf("%s: reason %q, message %q", kind, reason, message)
		}
	}
}

func TestEventsAreAboutTheNodeAndWhoeverHoldsTheDevice(t *testing.T) {
	key, err := device.NewPlugin("node-7", "example.com/gpu", "GPU-1")
	if err != nil {
		t.Fatal(err)
	}
	pod := func(name string) device.PodRef {
		return device.PodRef{Namespace: "team", Name: name, UID: name + "-uid"}
	}
	got := ""
	for _, o := range concerned(key, quarantine.Case{
		Holders: []quarantine.Holder{{Pod: pod("holds")}},
		Reports: []device.Report{
			{Pod: pod("holds")}, {Pod: pod("reports")}, {Pod: pod("ended"), Ended: true}, {Pod: pod("monitors"), Monitor: true},
		},
	}) {
		got += o.Kind + " " + o.Namespace + "/" + o.Name + " " + string(o.UID) + "\n"
	}
	if want := "Node /node-7 node-7\nPod team/holds holds-uid\nPod team/reports reports-uid\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	dra, err := device.NewDRA("gpu.example.com", "fabric", "gpu-0")
	if err != nil {
		t.Fatal(err)
	}
	if got := concerned(dra, quarantine.Case{}); len(got) != 0 {
		t.Errorf("a device on no one node has Events on %v", got)
	}
}

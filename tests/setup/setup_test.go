package setup

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// On a Temporal that knows nothing of Sickbay one command makes all that it needs,
// and says so truly before and after; what others made stays.
func TestSetupFromNothing(t *testing.T) {
	s := newSite(t, stack.Options{})
	temporal := s.dial("sickbay", "")
	describe := func(namespace string) (*workflowservice.DescribeNamespaceResponse, error) {
		return temporal.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	}
	retention := func(namespace string) time.Duration {
		t.Helper()
		described, err := describe(namespace)
		if err != nil {
			t.Fatal(err)
		}
		return described.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	}

	t.Run("a dry run says what is missing and makes nothing", func(t *testing.T) {
		s.sickbay(nil, "setup", "temporal", "--dry-run").wants(t, 0,
			"would create namespace sickbay, which keeps closed workflows for 30d\n",
			"would add search attribute SickbayNode of type Keyword to namespace sickbay\n", "nothing was changed: --dry-run\n")
		var missing *serviceerror.NamespaceNotFound
		if _, err := describe("sickbay"); !errors.As(err, &missing) {
			t.Errorf("the namespace: %v, want that there is none", err)
		}
	})
	t.Run("a retention that the server doesn't keep is refused", func(t *testing.T) {
		s.sickbay(nil, "setup", "temporal", "--retention", "30m").wants(t, 2, "--retention 30m: ", "at least 1h", "did not create namespace sickbay")
		for _, wrong := range []string{"soon", "-1d", "0d", "40000d", "1d2d"} {
			s.sickbay(nil, "setup", "temporal", "--retention="+wrong).wants(t, 2, "--retention \""+wrong+"\": want")
		}
	})
	t.Run("the run after makes it all, and it can be used at once", func(t *testing.T) {
		made := s.sickbay(nil, "setup", "temporal", "-o", "json", "--retention", "720h")
		made.wants(t, 0)
		r := made.report(t)
		if !r.Ready || r.DryRun || len(r.Changes) != 1+len(devicewf.SearchAttributes()) {
			t.Errorf("it says %s", made.out)
		}
		for _, change := range r.Changes {
			if change.Outcome != "done" {
				t.Errorf("%+v, want it done", change)
			}
		}
		described, err := describe("sickbay")
		if err != nil {
			t.Fatal(err)
		}
		if info := described.GetNamespaceInfo(); !strings.Contains(info.GetDescription(), "Sickbay") || info.GetOwnerEmail() != "sickbay" {
			t.Errorf("nothing says whose it is: %v", info)
		}
		if got := retention("sickbay"); got != 30*24*time.Hour {
			t.Errorf("retention %s, want 30 days", got)
		}
		if _, err := temporal.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: "SickbayPhase = 'Quarantined'"}); err != nil {
			t.Errorf("right after: %v", err)
		}
	})
	t.Run("another run has nothing to do", func(t *testing.T) {
		again := s.sickbay(nil, "setup", "temporal")
		again.wants(t, 0)
		if again.out != "nothing to do: namespace sickbay has all that Sickbay needs\n" {
			t.Errorf("it says %q", again.out)
		}
	})
	t.Run("a case runs and is found by each attribute", func(t *testing.T) {
		s.service("worker", "worker", "/healthz")
		s.openCase(temporal)
		if said := s.log("worker"); !strings.Contains(said, `"searchAttributes":true`) {
			t.Errorf("the worker finds no search attributes:\n%s", said)
		}
	})
	t.Run("a longer retention is shortened only if asked for", func(t *testing.T) {
		s.sickbay(nil, "setup", "temporal", "--retention", "90d").wants(t, 0, "kept closed workflows of namespace sickbay for 90d instead of 30d\n")
		s.sickbay(nil, "setup", "temporal").wants(t, 0, "keeps closed workflows for 90d; that is longer than 30d, and stays", "nothing to do")
		if got := retention("sickbay"); got != 90*24*time.Hour {
			t.Errorf("retention %s, want 90 days", got)
		}
		s.sickbay(nil, "setup", "temporal", "--retention", "30d").wants(t, 0, "for 30d instead of 90d")
		if got := retention("sickbay"); got != 30*24*time.Hour {
			t.Errorf("retention %s, want 30 days", got)
		}
	})
	t.Run("a namespace of somebody else keeps what it has", func(t *testing.T) {
		register(t, temporal, "shared", "research@example.com")
		s.sickbay([]string{"SICKBAY_TEMPORAL_NAMESPACE=shared"}, "setup", "temporal").wants(t, 0, "kept closed workflows of namespace shared for 30d instead of 1d", "namespace shared is ready")
		described, err := describe("shared")
		if err != nil {
			t.Fatal(err)
		}
		if info := described.GetNamespaceInfo(); info.GetOwnerEmail() != "research@example.com" || info.GetDescription() != "" {
			t.Errorf("it says now %v", info)
		}
		s.sickbay([]string{"SICKBAY_TEMPORAL_NAMESPACE=shared"}, "setup", "temporal", "--owner", "platform@example.com").wants(t, 0, "noted in namespace shared whose it is")
		if described, err = describe("shared"); err != nil || described.GetNamespaceInfo().GetOwnerEmail() != "platform@example.com" {
			t.Errorf("the owner is %q, %v", described.GetNamespaceInfo().GetOwnerEmail(), err)
		}
	})
	t.Run("an attribute of another type is an error, and nothing is changed", func(t *testing.T) {
		register(t, temporal, "taken", "")
		_, err := temporal.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
			Namespace: "taken", SearchAttributes: map[string]enumspb.IndexedValueType{"SickbayNode": enumspb.INDEXED_VALUE_TYPE_INT},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"setup", "temporal"}, {"setup", "temporal", "--dry-run"}} {
			s.sickbay([]string{"SICKBAY_TEMPORAL_NAMESPACE=taken"}, args...).wants(t, 1,
				"search attribute SickbayNode has type Int, and Sickbay writes type Keyword", "temporal operator search-attribute remove --name SickbayNode")
		}
		if got := retention("taken"); got != 24*time.Hour {
			t.Errorf("retention %s: something was changed", got)
		}
	})
	t.Run("a Temporal that is away is told of within the time that is given", func(t *testing.T) {
		for what, env := range map[string][]string{
			"nobody listens": {"SICKBAY_TEMPORAL_ADDRESS=127.0.0.1:1"},
			"it hangs":       nil,
		} {
			if what == "it hangs" {
				if err := s.stack.SignalPart(stack.Temporal, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			a := s.sickbay(env, "setup", "temporal", "--timeout", "2s")
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: told after %s", what, took)
			}
			a.wants(t, 1, "given up on Temporal at 127.0.0.1:", "after 2s", "ask Temporal for its version")
		}
		if err := s.stack.SignalPart(stack.Temporal, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("wrong words are refused", func(t *testing.T) {
		s.sickbay(nil, "setup", "temporal", "-o", "yaml").wants(t, 2, "want json, or nothing for text")
		s.sickbay(nil, "setup", "temporal", "--timeout", "0s").wants(t, 2, "--timeout 0s")
		s.sickbay(nil, "setup", "temporl").wants(t, 2, "did you mean temporal?")
		s.sickbay(nil, "setup").wants(t, 0, "temporal")
	})
}

// register makes a namespace that keeps closed workflows for a day, and waits until
// it is known.
func register(t *testing.T, temporal client.Client, name, owner string) {
	t.Helper()
	_, err := temporal.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, OwnerEmail: owner, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	if err != nil {
		t.Fatal(fmt.Errorf("register %s: %w", name, err))
	}
}

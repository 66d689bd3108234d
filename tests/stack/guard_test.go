package stack_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

// Temporal lives in PostgreSQL, lets in only who has a certificate of its authority
// and a key, and lets nobody do more than the key says; after kill -9 of both it
// still has what it was told.
func TestASecuredTemporalInPostgreSQL(t *testing.T) {
	s := stack.Start(t, stack.Options{Temporal: true, TemporalPostgreSQL: true, TemporalClientCertificates: true, TemporalKeys: true})
	describe := func(permission string) error {
		key, err := s.TemporalKey("test", time.Hour, permission)
		if err != nil {
			t.Fatal(err)
		}
		return withKey(t, s, key, func(ctx context.Context, c client.Client) error {
			_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: s.TemporalNamespace()})
			return err
		})
	}
	var missing *serviceerror.NamespaceNotFound
	if err := describe("sickbay:read"); !errors.As(err, &missing) {
		t.Errorf("before there is a namespace: %v, want that there is none", err)
	}
	var denied *serviceerror.PermissionDenied
	if err := describe("other:admin"); !errors.As(err, &denied) {
		t.Errorf("with a key for another namespace: %v, want a refusal", err)
	}
	key, err := s.TemporalKey("test", time.Hour, "sickbay:admin")
	if err != nil {
		t.Fatal(err)
	}
	err = withKey(t, s, key, func(ctx context.Context, c client.Client) error {
		_, err := c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace: s.TemporalNamespace(), WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{stack.Temporal, stack.PostgreSQL} {
		if err := s.KillPart(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{stack.PostgreSQL, stack.Temporal} {
		if err := s.StartPart(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := describe("sickbay:read"); err != nil {
		t.Errorf("after kill -9: %v", err)
	}
}

// withKey calls Temporal with a key, as the stack's own client.
func withKey(t *testing.T, s *stack.Stack, key string, call func(context.Context, client.Client) error) error {
	t.Helper()
	secured, err := s.TemporalTLS()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewLazyClient(client.Options{
		HostPort: s.TemporalAddress(), Credentials: client.NewAPIKeyStaticCredentials(key),
		ConnectionOptions: client.ConnectionOptions{TLS: secured},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return call(ctx, c)
}

package temporal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ErrRetention is wrapped where the server doesn't take a retention.
var ErrRetention = errors.New("the server doesn't keep closed workflows for so short a time: " +
	"at least 1h in a namespace of one cluster and 24h in a global one, unless its operator set system.namespaceMinRetentionLocal or …Global")

// Apply makes one change. Making it again, or one that somebody else made
// meanwhile, is no error. A refusal for lack of rights is a *DeniedError, and what
// the server doesn't offer at all is one too.
func Apply(ctx context.Context, service Service, namespace string, change Change) error {
	told := func(err error) error {
		return refused(err, fmt.Errorf("%s: %w", change.Imperative(namespace), err))
	}
	switch change.Kind {
	case CreateNamespace:
		_, err := service.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace: namespace, Description: change.Description, OwnerEmail: change.Owner,
			WorkflowExecutionRetentionPeriod: durationpb.New(change.Retention),
		})
		var there *serviceerror.NamespaceAlreadyExists
		if errors.As(err, &there) {
			return nil
		}
		return told(retention(err))
	case SetRetention:
		_, err := service.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
			Namespace: namespace,
			Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(change.Retention)},
		})
		return told(retention(err))
	case SetOwner:
		_, err := service.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
			Namespace:  namespace,
			UpdateInfo: &namespacepb.UpdateNamespaceInfo{Description: change.Description, OwnerEmail: change.Owner},
		})
		return told(err)
	case AddSearchAttribute:
		_, err := service.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: namespace, SearchAttributes: Attributes{change.Attribute: change.Type},
		})
		var there *serviceerror.AlreadyExists
		if errors.As(err, &there) {
			return nil
		}
		return told(err)
	}
	return fmt.Errorf("no change is called %q", change.Kind)
}

// retention marks the server's refusal of a retention; it is the only thing in the
// request that it can find wrong.
func retention(err error) error {
	var invalid *serviceerror.InvalidArgument
	if errors.As(err, &invalid) && strings.Contains(strings.ToLower(invalid.Message), "retention") {
		return fmt.Errorf("%w (%w)", ErrRetention, err)
	}
	return err
}

// refused marks what the caller may not do, or what the server lets nobody do.
func refused(err, told error) error {
	if err == nil {
		return nil
	}
	var unimplemented *serviceerror.Unimplemented
	if errors.As(err, &unimplemented) {
		return &DeniedError{Right: RightAdmin, NotOffered: true, Err: told}
	}
	return denied(err, RightAdmin, told)
}

// Transient tells whether the same may work a moment later: Temporal is away or
// busy, or one of its servers hasn't heard of the namespace yet.
func Transient(err error) bool {
	var denied *DeniedError
	var invalid *serviceerror.InvalidArgument
	return err != nil && !errors.As(err, &denied) && !errors.As(err, &invalid) && !errors.Is(err, ErrRetention) && !errors.Is(err, ErrNamespace)
}

// usablePause is the pause between two questions whether a namespace is usable.
// Visibility answers ten questions a second.
const usablePause = 250 * time.Millisecond

// AwaitUsable waits until workflows can be searched by the attributes. Temporal's
// servers hear of a new namespace and of new attributes some seconds late, and say
// until then that they don't exist.
func AwaitUsable(ctx context.Context, service Service, namespace string, attributes Attributes) error {
	var terms []string
	for _, name := range attributes.names() {
		terms = append(terms, name+" IS NOT NULL")
	}
	ticker := time.NewTicker(usablePause)
	defer ticker.Stop()
	for {
		_, err := service.WorkflowService().CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: namespace, Query: strings.Join(terms, " AND "),
		})
		if err == nil {
			return nil
		}
		if refusal := denied(err, RightRead, fmt.Errorf("search namespace %s: %w", namespace, err)); errors.As(refusal, new(*DeniedError)) {
			return refusal
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("namespace %s isn't usable yet: %w", namespace, err)
		case <-ticker.C:
		}
	}
}

package temporal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
)

// Service is what is used of a Temporal client.
type Service interface {
	WorkflowService() workflowservice.WorkflowServiceClient
	OperatorService() operatorservice.OperatorServiceClient
}

// Attributes are search attributes with their types, by name.
type Attributes map[string]enumspb.IndexedValueType

// names in a fixed order.
func (a Attributes) names() []string { return slices.Sorted(maps.Keys(a)) }

// State is what a namespace is like.
type State struct {
	// Namespace is its name.
	Namespace string
	// Server is the server's version, "1.32.1".
	Server string
	// Exists tells whether there is such a namespace. Nothing below is known
	// where there is none.
	Exists bool
	// Status is registered, or the namespace is on its way out.
	Status enumspb.NamespaceState
	// Retention is how long a closed workflow's history is kept.
	Retention   time.Duration
	Description string
	Owner       string
	// Attributes are its custom search attributes.
	Attributes Attributes
}

// Inspect reads what a namespace is like. It needs the right to read it, and none
// to write. That there is no such namespace is no error. A refusal for lack of
// rights is a *DeniedError.
func Inspect(ctx context.Context, service Service, namespace string) (State, error) {
	state := State{Namespace: namespace}
	system, err := service.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return state, denied(err, "", fmt.Errorf("ask Temporal for its version: %w", err))
	}
	state.Server = system.GetServerVersion()
	described, err := service.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	var missing *serviceerror.NamespaceNotFound
	if errors.As(err, &missing) {
		return state, nil
	}
	if err != nil {
		return state, denied(err, RightRead, fmt.Errorf("describe namespace %s: %w", namespace, err))
	}
	state.Exists = true
	state.Status = described.GetNamespaceInfo().GetState()
	state.Description = described.GetNamespaceInfo().GetDescription()
	state.Owner = described.GetNamespaceInfo().GetOwnerEmail()
	state.Retention = described.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	listed, err := service.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return state, denied(err, RightRead, fmt.Errorf("list the search attributes of namespace %s: %w", namespace, err))
	}
	state.Attributes = listed.GetCustomAttributes()
	return state, nil
}

// Missing are the names of those attributes that the namespace has with no type.
func (s State) Missing(wanted Attributes) []string {
	var missing []string
	for _, name := range wanted.names() {
		if _, there := s.Attributes[name]; !there {
			missing = append(missing, name)
		}
	}
	return missing
}

// Mistyped is a search attribute that a namespace has with another type than the
// wanted one. Nothing of that name can be written by Sickbay.
type Mistyped struct {
	Name        string
	Has, Wanted enumspb.IndexedValueType
}

// Mistyped are those attributes that the namespace has with another type.
func (s State) Mistyped(wanted Attributes) []Mistyped {
	var wrong []Mistyped
	for _, name := range wanted.names() {
		if has, there := s.Attributes[name]; there && has != wanted[name] {
			wrong = append(wrong, Mistyped{Name: name, Has: has, Wanted: wanted[name]})
		}
	}
	return wrong
}

// String says what is wrong and what can be done.
func (m Mistyped) String() string {
	return fmt.Sprintf("search attribute %s has type %s, and Sickbay writes type %s; "+
		"remove it if nothing else uses it (temporal operator search-attribute remove --name %s), or give Sickbay a namespace of its own",
		m.Name, m.Has, m.Wanted, m.Name)
}

package temporal

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
)

// A server that doesn't make namespaces or attributes through this API, as Temporal
// Cloud, is told from one that is away: nobody waits for it. Its stubs are those
// that the API generates for what a server doesn't implement.
func TestAServerThatDoesNotOfferItIsToldFromOneThatIsAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, workflowservice.UnimplementedWorkflowServiceServer{})
	operatorservice.RegisterOperatorServiceServer(server, operatorservice.UnimplementedOperatorServiceServer{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	service, err := client.NewLazyClient(client.Options{HostPort: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	for _, change := range []Change{
		{Kind: CreateNamespace, Retention: day}, {Kind: SetRetention, Retention: day}, {Kind: SetOwner, Owner: "me"},
		{Kind: AddSearchAttribute, Attribute: "SickbayNode", Type: enumspb.INDEXED_VALUE_TYPE_KEYWORD},
	} {
		err := Apply(t.Context(), service, "sickbay", change)
		var denied *DeniedError
		if !errors.As(err, &denied) || !denied.NotOffered || Transient(err) || !strings.Contains(err.Error(), "the server doesn't offer that") {
			t.Errorf("%s: %v, want that it isn't offered", change.Kind, err)
		}
	}
	away, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(away.Close)
	if err := Apply(context.Background(), away, "sickbay", Change{Kind: CreateNamespace, Retention: day}); !Transient(err) {
		t.Errorf("a server that is away: %v, which waiting should help", err)
	}
}

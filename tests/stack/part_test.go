// Killing parts and starting them again, as chaos tests do.

package stack_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

func TestAKilledAPIServerComesBackOnItsAddressWithItsObjects(t *testing.T) {
	s := stack.Start(t, stack.Options{Kubernetes: "1.36"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	made, err := client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	must(t, err)
	before := s.PID(stack.APIServer)

	must(t, s.KillPart(stack.APIServer))
	if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err == nil {
		t.Error("the killed API server answers")
	}
	must(t, s.StartPart(ctx, stack.APIServer))

	kept, err := client.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
	must(t, err)
	if kept.UID != made.UID || s.PID(stack.APIServer) == before {
		t.Errorf("object %s, was %s; pid %d, was %d", kept.UID, made.UID, s.PID(stack.APIServer), before)
	}
	// The controller manager was not restarted and must have found its way back.
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
	must(t, err)
	await(t, ctx, "the new namespace has its ServiceAccount", func() bool {
		_, err := client.CoreV1().ServiceAccounts("after").Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

func TestAKilledTemporalGoesOnFromItsFile(t *testing.T) {
	s := stack.Start(t, stack.Options{Temporal: true, SearchAttributes: map[string]string{"SickbayNode": "Keyword"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, err := startWorkflow(ctx, s, "kept", "SickbayNode")
	must(t, err)
	if _, err := startWorkflow(ctx, s, "other", "NobodyMadeThis"); err == nil {
		t.Error("a search attribute that was not asked for is accepted")
	}

	must(t, s.KillPart(stack.Temporal))
	must(t, s.StartPart(ctx, stack.Temporal))

	found, err := temporal(t, s).DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: s.TemporalNamespace(), Execution: &commonpb.WorkflowExecution{WorkflowId: "kept"},
	})
	must(t, err)
	if got := found.WorkflowExecutionInfo.Execution.RunId; got != run {
		t.Errorf("run %s, want %s", got, run)
	}
}

func TestTemporalsDynamicConfigurationCanBeChangedWhileItRuns(t *testing.T) {
	s := stack.Start(t, stack.Options{Temporal: true, DynamicConfig: map[string]any{"limit.maxIDLength": 30}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := startWorkflow(ctx, s, strings.Repeat("x", 40), ""); err == nil {
		t.Error("the limit from the start is not in force")
	}

	must(t, s.SetDynamicConfig(map[string]any{"limit.maxIDLength": 50}))

	// Well below the 5 seconds after which the server would look by itself.
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	await(t, soon, "the raised limit is in force", func() bool {
		_, err := startWorkflow(ctx, s, strings.Repeat("x", 40), "")
		return err == nil
	})
}

func TestAKilledRedisComesBackWithItsData(t *testing.T) {
	s := stack.Start(t, stack.Options{Redis: true})
	if got := redis(t, s, "SET kept yes"); got != "+OK" {
		t.Fatalf("SET: %s", got)
	}

	must(t, s.KillPart(stack.Redis))
	if err := s.KillPart(stack.Redis); err == nil {
		t.Error("a part that does not run was killed")
	}
	must(t, s.StartPart(t.Context(), stack.Redis))

	if got := redis(t, s, "GET kept"); got != "$3" {
		t.Errorf("GET answers %q", got)
	}
	if err := s.StartPart(t.Context(), stack.Redis); err == nil {
		t.Error("a part that runs was started")
	}
}

func TestAProcessOfATestRunsAsAPart(t *testing.T) {
	s := stack.Start(t, stack.Options{Redis: true})
	port, err := s.FreePort()
	must(t, err)
	ready := func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		return connection.Close()
	}
	must(t, s.StartProcess(t.Context(), stack.Process{
		Name: "second", Path: "redis-server", Args: []string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", ""},
		Ready: ready,
	}))
	must(t, s.StopPart(t.Context(), "second"))
	if err := ready(t.Context()); err == nil {
		t.Error("it still listens")
	}
	err = s.StartProcess(t.Context(), stack.Process{
		Name: "broken", Path: "redis-server", Args: []string{"--no-such-option", "x"}, Ready: ready,
	})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("the error of a process that ends at once does not show its output: %v", err)
	}
}

func temporal(t *testing.T, s *stack.Stack) workflowservice.WorkflowServiceClient {
	t.Helper()
	connection, err := grpc.NewClient(s.TemporalAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return workflowservice.NewWorkflowServiceClient(connection)
}

// startWorkflow starts a workflow that no worker runs, with a search attribute
// if one is named, and returns its run ID.
func startWorkflow(ctx context.Context, s *stack.Stack, id, attribute string) (string, error) {
	connection, err := grpc.NewClient(s.TemporalAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	request := &workflowservice.StartWorkflowExecutionRequest{
		Namespace: s.TemporalNamespace(), WorkflowId: id, RequestId: id,
		WorkflowType: &commonpb.WorkflowType{Name: "nothing"},
		TaskQueue:    &taskqueuepb.TaskQueue{Name: "nobody"},
	}
	if attribute != "" {
		request.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			attribute: {Metadata: map[string][]byte{"encoding": []byte("json/plain"), "type": []byte("Keyword")}, Data: []byte(`"node-0"`)},
		}}
	}
	started, err := workflowservice.NewWorkflowServiceClient(connection).StartWorkflowExecution(ctx, request)
	if err != nil {
		return "", err
	}
	return started.RunId, nil
}

// redis sends one command and returns the first line of the answer.
func redis(t *testing.T, s *stack.Stack, command string) string {
	t.Helper()
	connection, err := net.Dial("tcp", s.RedisAddress())
	must(t, err)
	defer connection.Close()
	_, err = io.WriteString(connection, command+"\r\n")
	must(t, err)
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

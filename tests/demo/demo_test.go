package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/tests/checks"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// running is a demo under way, as somebody at a terminal would have it.
type running struct {
	t       *testing.T
	command *exec.Cmd
	mark    string

	mu   sync.Mutex
	said bytes.Buffer
	grew chan struct{}
	over chan struct{}
}

// begin runs a command in the root of the clone, in a process group of its own
// as a terminal gives it one, and reads what it says.
func begin(t *testing.T, environment []string, command string, args ...string) *running {
	t.Helper()
	root, err := checks.Root()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{
		t: t, command: exec.Command(command, args...), mark: fmt.Sprintf("SICKBAY_STACK_DEMO_TEST=%d-%s", os.Getpid(), t.Name()),
		grew: make(chan struct{}, 1), over: make(chan struct{}),
	}
	r.command.Dir = root
	r.command.Env = append(append(os.Environ(), r.mark), environment...)
	r.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	output, err := r.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.command.Stderr = r.command.Stdout
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	go r.read(output)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the demo said:\n%s", r.text())
		}
		// The group may be gone; then there is nothing to kill.
		_ = syscall.Kill(-r.command.Process.Pid, syscall.SIGKILL)
	})
	return r
}

func (r *running) read(output io.Reader) {
	defer close(r.over)
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		r.mu.Lock()
		r.said.WriteString(lines.Text() + "\n")
		r.mu.Unlock()
		select {
		case r.grew <- struct{}{}:
		default:
		}
	}
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.String()
}

// await waits until what was said satisfies a condition.
func (r *running) await(ctx context.Context, what string, met func(string) bool) {
	r.t.Helper()
	for !met(r.text()) {
		select {
		case <-r.grew:
		case <-r.over:
			if !met(r.text()) {
				r.t.Fatalf("the demo ended and never said %s", what)
			}
		case <-ctx.Done():
			r.t.Fatalf("the demo didn't say %s: %v", what, context.Cause(ctx))
		}
	}
}

// interrupt presses Ctrl-C, and wants the end to be clean and complete.
func (r *running) interrupt(ctx context.Context) {
	r.t.Helper()
	if err := syscall.Kill(-r.command.Process.Pid, syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.over:
	case <-ctx.Done():
		r.t.Fatalf("not ended after Ctrl-C: %v", context.Cause(ctx))
	}
	// make ends by the same Ctrl-C; what the demo itself says counts.
	_ = r.command.Wait()
	if said := r.text(); !strings.Contains(said, "demo: everything stopped\n") || strings.Contains(said, "demo: stop:") {
		r.t.Error("the demo didn't end cleanly")
	}
	left, err := checks.Marked(r.mark)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(left) > 0 {
		r.t.Errorf("still running after the end: %v", left)
	}
}

func limited(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("not within %s", limit))
	t.Cleanup(cancel)
	return ctx
}

func TestTheDemoHandlesItsFaultsAndLeavesNothingRunningAfterCtrlC(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Fatal(err)
	}
	demo := begin(t, []string{"KUBECONFIG="}, "make", "demo", "DEMO=--expect")
	demo.await(limited(t, 6*time.Minute), finished, func(said string) bool { return strings.Contains(said, finished) })
	said := demo.text()
	for _, want := range []string{"Temporal UI: http://", "XidFallenOffBus", "DEVICE "} {
		if !strings.Contains(said, want) {
			t.Errorf("the demo never showed %q", want)
		}
	}
	t.Run("README.md shows what it shows", demo.wantReadme)
	t.Run("docs/cli.md says what its commands do", func(t *testing.T) {
		o := demo.shell(t)
		o.moreFaults()
		pages.Run(t, pages.Page{Path: "docs/cli.md", Env: o.env, Update: *update})
		o.completes()
	})
	demo.interrupt(limited(t, time.Minute))
}

// written is what a user changed in the cluster, and how often the user called.
func written(t *testing.T, s *stack.Stack, user string) (changes []string, calls int) {
	t.Helper()
	made, err := s.Calls(user)
	must(t, err)
	for _, call := range made {
		if call.Writes() {
			changes = append(changes, call.String())
		}
	}
	return changes, len(made)
}

func TestWatchingAClusterShowsItsFaultsAndChangesNothingInIt(t *testing.T) {
	s := stack.Start(t, stack.Options{Kubernetes: "1.37"})
	nodes := simnode.Start(t, s.SimulatorConfig(), simnode.Options{})
	ctx := limited(t, 5*time.Minute)
	must(t, nodes.Add(ctx, simnode.MakeNode("node-0", 2)))
	_, err := nodes.Place(ctx, namespace, "job", "node-0", "gpu-0")
	must(t, err)
	kubeconfig := visitor(t, ctx, s)

	demo := begin(t, []string{"KUBECONFIG=" + kubeconfig, "SICKBAY_MODE="}, "make", "demo")
	demo.await(ctx, "which cluster it watches", func(said string) bool {
		return strings.Contains(said, "watching the cluster at "+s.APIServerURL()+"; mode observe") && strings.Contains(said, "gpu.example.com/node-0/gpu-0")
	})
	_, err = nodes.Set(ctx, "node-0", "gpu-0", corev1.ResourceHealthStatusUnhealthy, fallen)
	must(t, err)
	demo.await(ctx, "that the device would be kept out", func(said string) bool {
		for line := range strings.Lines(said) {
			if fields := strings.Fields(line); len(fields) > 6 && fields[0] == "gpu.example.com/node-0/gpu-0" && fields[3] == "Quarantined" && fields[6] == "Observed" {
				return true
			}
		}
		return false
	})
	demo.interrupt(limited(t, time.Minute))

	changes, calls := written(t, s, "visitor")
	if calls == 0 {
		t.Fatal("the audit log has no call of the visitor; nothing is proven")
	}
	if len(changes) > 0 {
		t.Errorf("the demo changed the cluster:\n%s", strings.Join(changes, "\n"))
	}
}

func TestAClusterThatIsNotThereIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "nowhere")
	demo := begin(t, []string{"KUBECONFIG=" + missing}, "make", "demo")
	select {
	case <-demo.over:
	case <-limited(t, 2*time.Minute).Done():
		t.Fatal("the demo goes on")
	}
	if err := demo.command.Wait(); err == nil {
		t.Error("the demo says that it succeeded")
	}
	if said := demo.text(); !strings.Contains(said, missing) || strings.Contains(said, "panic") {
		t.Error("the demo doesn't name the KUBECONFIG that it can't read")
	}
	left, err := checks.Marked(demo.mark)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("still running after the end: %v", left)
	}
}

// visitor is a user who may do everything, so that only the demo's own restraint
// keeps it from doing something.
func visitor(t *testing.T, ctx context.Context, s *stack.Stack) (kubeconfig string) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "visitor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "visitor"}},
	}, metav1.CreateOptions{})
	must(t, err)
	kubeconfig, err = s.UserKubeconfig("visitor")
	must(t, err)
	kubeconfig, err = filepath.Abs(kubeconfig)
	must(t, err)
	return kubeconfig
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package realnode_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/realnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// runAsVictim makes the test binary a test run that will be killed. Its value is
// the file to write the node's directory to once a Pod runs.
const runAsVictim = "REALNODE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if file := os.Getenv(runAsVictim); file != "" {
		fmt.Fprintln(os.Stderr, victim(context.Background(), file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim starts a node with a Pod and then waits to be killed.
func victim(ctx context.Context, file string) error {
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	s, err := stack.Run(ctx, stack.Options{Kubernetes: newest(), Logf: logf})
	if err != nil {
		return err
	}
	n, err := realnode.Run(ctx, s, realnode.Options{Logf: logf})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: realnode.Image, ImagePullPolicy: corev1.PullNever}}},
	}
	if _, err := n.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := started(ctx, n, "p"); err == nil {
			break
		}
		<-tick.C
	}
	if err := os.WriteFile(file, []byte(n.Dir()), 0o600); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func newest() string {
	versions := stack.Versions()
	return versions[len(versions)-1]
}

func TestANodeWhoseTestWasKilledIsClearedAwayByTheNext(t *testing.T) {
	realnode.SkipUnlessRoot(t)
	file := filepath.Join(t.TempDir(), "dir")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), runAsVictim+"="+file)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	within(t, 10*time.Minute, "the other test's Pod runs", func(context.Context) error {
		select {
		case err := <-ended:
			t.Fatalf("the other test ended by itself: %v", err)
		default:
		}
		_, err := os.Stat(file)
		return err
	})
	dir, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if len(leftovers(t, string(dir))) == 0 {
		t.Fatal("kill -9 left nothing: there is nothing to clear away")
	}

	s := stack.Start(t, stack.Options{Kubernetes: newest()})
	n, err := realnode.Run(t.Context(), s, realnode.Options{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, left := range leftovers(t, string(dir)) {
		t.Error(left)
	}
}

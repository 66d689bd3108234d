package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// commandVariable makes the test binary be the command.
const commandVariable = "STACK_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestWhatItPrintsWorksAndSIGTERMEndsItCleanly(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], "--nodes", "2", "--devices", "1")
	command.Env = append(os.Environ(), commandVariable+"=1")
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	exports := map[string]string{}
	lines := bufio.NewScanner(out)
	for len(exports) < 5 && lines.Scan() {
		name, value, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "=")
		exports[name] = value
	}

	config, err := clientcmd.BuildConfigFromFlags("", exports["KUBECONFIG"])
	if err != nil {
		t.Fatalf("KUBECONFIG=%s: %v", exports["KUBECONFIG"], err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 2 {
		t.Errorf("%d nodes, want 2: %v", len(nodes.Items), err)
	}
	addresses := []string{exports["TEMPORAL_ADDRESS"], strings.TrimPrefix(exports["TEMPORAL_UI"], "http://"), exports["REDIS_ADDRESS"]}
	for _, address := range addresses {
		if !listens(address) {
			t.Errorf("nothing listens on %q", address)
		}
	}

	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	for _, address := range append(addresses, strings.TrimPrefix(config.Host, "https://")) {
		if listens(address) {
			t.Errorf("something still listens on %s", address)
		}
	}
	if _, err := os.Stat(exports["KUBECONFIG"]); !os.IsNotExist(err) {
		t.Errorf("%s is still there", exports["KUBECONFIG"])
	}
}

func listens(address string) bool {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return connection.Close() == nil
}

package realnode_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/realnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

func within(t *testing.T, d time.Duration, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %s: %s: %v", d, what, err)
		}
	}
}

// started returns the container's ID and start once the Pod runs.
func started(ctx context.Context, n *realnode.Node, pod string) (string, error) {
	p, err := n.Client().CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if p.Status.Phase != corev1.PodRunning || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
		return "", fmt.Errorf("Pod %s is %s: %+v", pod, p.Status.Phase, p.Status.ContainerStatuses)
	}
	return p.Status.ContainerStatuses[0].ContainerID, nil
}

func TestARealNodeRunsAPodThroughKillsAndLeavesNothing(t *testing.T) {
	realnode.SkipUnlessRoot(t)
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			ctx := t.Context()
			s := stack.Start(t, stack.Options{Kubernetes: version})
			n, err := realnode.Run(ctx, s, realnode.Options{Labels: map[string]string{"rack": "r1"}, Logf: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := n.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"rack": "r1"},
					Containers:   []corev1.Container{{Name: "main", Image: realnode.Image, ImagePullPolicy: corev1.PullNever}},
				},
			}
			if _, err := n.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			var id string
			within(t, 30*time.Second, "the Pod runs", func(ctx context.Context) (err error) {
				id, err = started(ctx, n, "p")
				return err
			})
			node, err := n.Client().CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := node.Status.NodeInfo.KubeletVersion; got != "v"+s.KubernetesVersion() {
				t.Errorf("the kubelet is %s, want v%s", got, s.KubernetesVersion())
			}

			for name, restart := range map[string]func() error{
				"kubelet":    func() error { return errors.Join(n.KillKubelet(), n.StartKubelet(ctx)) },
				"containerd": func() error { return errors.Join(n.KillContainerd(), n.StartContainerd(ctx)) },
			} {
				if err := restart(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				// An annotation that comes back in the status would be proof, but a
				// kubelet has none; a second Pod is one.
				second := pod.DeepCopy()
				second.Name = "after-" + name
				if _, err := n.Client().CoreV1().Pods("default").Create(ctx, second, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				within(t, 40*time.Second, "a new Pod runs after kill -9 of the "+name, func(ctx context.Context) error {
					_, err := started(ctx, n, second.Name)
					return err
				})
				if now, err := started(ctx, n, "p"); err != nil || now != id {
					t.Errorf("after kill -9 of the %s the old container is %q, was %q (%v)", name, now, id, err)
				}
			}

			begin := time.Now()
			if err := n.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			t.Logf("stopped in %.1fs", time.Since(begin).Seconds())
			for _, left := range leftovers(t, n.Dir()) {
				t.Error(left)
			}
		})
	}
}

// leftovers lists what a node should not leave on the machine.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		if strings.Contains(lines.Text(), dir) {
			left = append(left, "mount: "+lines.Text())
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), dir+"/") {
			left = append(left, "process: "+strings.ReplaceAll(string(content), "\x00", " "))
		}
	}
	for _, pattern := range []string{dir, "/sys/fs/cgroup/*/sickbay-realnode", "/sys/fs/cgroup/sickbay-realnode", "/sys/class/net/sickbay0", "/var/lib/kubelet/device-plugins/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			left = append(left, "path: "+path)
		}
	}
	return left
}

package kubelet

// This file looks at Sickbay's own Pods: that they run under what the manifests say,
// and not only claim to.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/deploy"
)

func ownPods() []test {
	return []test{
		{name: "every process runs as nobody, without rights, on a root that it can't write", run: processesAreConfined},
		{name: "the API server counts their calls apart", run: callsAreCountedApart},
		{name: "one that is told to end does so within its grace period, and its stand-in goes on", run: podEndsInTime, alone: true},
	}
}

// awaitReady waits until each Deployment has so many ready Pods.
func (s *suite) awaitReady(t *testing.T, want map[string]int) {
	t.Helper()
	within(t, 2*soon, fmt.Sprintf("Sickbay's Pods are ready: %v", want), func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(deploy.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready, waiting := map[string]int{}, []error{}
		for _, pod := range pods.Items {
			name, _, _ := strings.Cut(pod.Name, "-")
			if isReady(pod) && pod.DeletionTimestamp == nil {
				ready[name]++
				continue
			}
			waiting = append(waiting, fmt.Errorf("%s: %s %+v %+v", pod.Name, pod.Status.Phase, pod.Status.Conditions, pod.Status.ContainerStatuses))
		}
		for name, count := range want {
			if ready[name] != count {
				waiting = append(waiting, fmt.Errorf("%d of %d of %s", ready[name], count, name))
				return errors.Join(waiting...)
			}
		}
		return nil
	})
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// statusLine is a line of /proc/<pid>/status.
var statusLine = regexp.MustCompile(`(?m)^(\w+):\s+(.*)$`)

// processesAreConfined asks the kernel.
func processesAreConfined(t *testing.T, _ *suite) {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	found := map[string]int{}
	for _, path := range commands {
		command, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(command), "/usr/bin/sickbay\x00") {
			continue // it ended, or is another
		}
		process := filepath.Dir(path)
		found[strings.Trim(strings.TrimPrefix(string(command), "/usr/bin/sickbay"), "\x00")]++
		raw, err := os.ReadFile(filepath.Join(process, "status"))
		must(t, err)
		status := map[string]string{}
		for _, line := range statusLine.FindAllStringSubmatch(string(raw), -1) {
			status[line[1]] = line[2]
		}
		for field, want := range map[string]string{
			"Uid": "65532\t65532\t65532\t65532", "Gid": "65532\t65532\t65532\t65532",
			"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapBnd": "0000000000000000",
			"NoNewPrivs": "1",
			// A filter is in force.
			"Seccomp": "2",
		} {
			if status[field] != want {
				t.Errorf("%s has %s %q, want %q", process, field, status[field], want)
			}
		}
		mounts, err := os.ReadFile(filepath.Join(process, "mountinfo"))
		must(t, err)
		if !regexp.MustCompile(`(?m)^\d+ \d+ \S+ / / ro[, ]`).Match(mounts) {
			t.Errorf("the root of %s can be written:\n%s", process, mounts)
		}
	}
	if found["starter"] != 2 || found["worker"] != 2 {
		t.Errorf("processes by command: %v, want two starters and two workers", found)
	}
}

func callsAreCountedApart(t *testing.T, s *suite) {
	raw, err := s.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	metric := regexp.MustCompile(`apiserver_flowcontrol_dispatched_requests_total\{flow_schema="sickbay",priority_level="sickbay"\} ([1-9]\d*)`)
	counted := metric.FindSubmatch(raw)
	if counted == nil {
		t.Fatal("the API server dispatched no request in Sickbay's flow")
	}
	t.Logf("%s requests in Sickbay's flow", counted[1])
	if rejected := regexp.MustCompile(`apiserver_flowcontrol_rejected_requests_total\{flow_schema="sickbay"[^\n]*`).Find(raw); rejected != nil {
		t.Errorf("the API server rejected requests of ours: %s", rejected)
	}
}

// podEndsInTime deletes the active starter and a worker, as a drain does.
func podEndsInTime(t *testing.T, s *suite) {
	var ending []string
	led := ""
	within(t, soon, "a starter leads, and a worker runs", func(ctx context.Context) error {
		lease, err := s.client.CoordinationV1().Leases(deploy.Namespace).Get(ctx, "sickbay-starter", metav1.GetOptions{})
		if err != nil {
			return err
		}
		led = ""
		if lease.Spec.HolderIdentity != nil {
			led = *lease.Spec.HolderIdentity
		}
		pods, err := s.client.CoreV1().Pods(deploy.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ending = nil
		for _, command := range []string{"starter", "worker"} {
			i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool {
				return p.DeletionTimestamp == nil && strings.HasPrefix(p.Name, command+"-") && (command == "worker" || led != "" && strings.Contains(led, p.Name))
			})
			if i < 0 {
				return fmt.Errorf("no Pod of %s, or none holds the Lease as %q", command, led)
			}
			ending = append(ending, pods.Items[i].Name)
		}
		return nil
	})
	began := time.Now()
	for _, name := range ending {
		must(t, s.client.CoreV1().Pods(deploy.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	within(t, soon, "both Pods are gone", func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(deploy.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if slices.Contains(ending, pod.Name) {
				return fmt.Errorf("%s is still there", pod.Name)
			}
		}
		return nil
	})
	if took := time.Since(began); took > 34*time.Second {
		t.Errorf("they took %s, and have 34 s at most", took)
	}
	within(t, soon, "the other starter is the active one", func(ctx context.Context) error {
		now, err := s.client.CoordinationV1().Leases(deploy.Namespace).Get(ctx, "sickbay-starter", metav1.GetOptions{})
		if err == nil && (*now.Spec.HolderIdentity == "" || *now.Spec.HolderIdentity == led) {
			err = fmt.Errorf("the Lease is held by %q", *now.Spec.HolderIdentity)
		}
		return err
	})
	s.awaitReady(t, map[string]int{"starter": 2, "worker": 2})
}

package kubelet

// This file compares what a kubelet wrote with golden files, which hold the
// health entries of each container as they were recorded from real kubelets.
// List order is the kubelet's and random, so both sides are sorted; names that
// differ from run to run stand in angle brackets.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// entries are the health entries of a Pod by container; nil where the container
// has none.
type entries map[string][]corev1.ResourceStatus

func entriesOf(p *corev1.Pod) entries {
	out := entries{}
	for _, c := range p.Status.ContainerStatuses {
		list := slices.Clone(c.AllocatedResourcesStatus)
		for i := range list {
			list[i].Resources = slices.Clone(list[i].Resources)
			slices.SortFunc(list[i].Resources, func(a, b corev1.ResourceHealth) int {
				return strings.Compare(string(a.ResourceID), string(b.ResourceID))
			})
		}
		slices.SortFunc(list, func(a, b corev1.ResourceStatus) int { return strings.Compare(string(a.Name), string(b.Name)) })
		out[c.Name] = list
	}
	return out
}

// entries reads the health entries of a Pod.
func (s *suite) entries(ctx context.Context, pod string) (entries, error) {
	p, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return entriesOf(p), nil
}

// text is the canonical form of entries: one line for each container.
func (e entries) text() string {
	names := make([]string, 0, len(e))
	for name := range e {
		names = append(names, name)
	}
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false) // golden files keep their angle brackets
		if err := enc.Encode(e[name]); err != nil {
			panic(err) // strings and lists of strings
		}
		fmt.Fprintf(&out, "%s: %s\n", name, strings.TrimSpace(line.String()))
	}
	return out.String()
}

// golden reads a golden file and fills in what stands in angle brackets.
func golden(t *testing.T, name string, fill map[string]string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("golden", name+".json"))
	must(t, err)
	for blank, value := range fill {
		raw = bytes.ReplaceAll(raw, []byte("<"+blank+">"), []byte(value))
	}
	var e entries
	must(t, json.Unmarshal(raw, &e))
	text := e.text()
	if i := strings.IndexByte(text, '<'); i >= 0 {
		t.Fatalf("golden/%s.json: nothing to fill in at %q", name, text[i:])
	}
	return text
}

// shows waits until a Pod's entries are those of a golden file.
func (s *suite) shows(t *testing.T, limit time.Duration, pod, name string, fill map[string]string) {
	t.Helper()
	want := golden(t, name, fill)
	begin := time.Now()
	within(t, limit, fmt.Sprintf("Pod %s shows golden/%s.json:\n%s", pod, name, want), func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := entriesOf(p).text(); got != want {
			return fmt.Errorf("it shows\n%s", got)
		}
		return nil
	})
	t.Logf("%s after %.2fs", name, time.Since(begin).Seconds())
}

// keepsShowing fails if a Pod's entries become anything else within a time.
func (s *suite) keepsShowing(t *testing.T, d time.Duration, pod, name string, fill map[string]string) {
	t.Helper()
	want := golden(t, name, fill)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if ctx.Err() != nil {
			return
		}
		must(t, err)
		if got := entriesOf(p).text(); got != want {
			t.Fatalf("Pod %s shows\n%swant for %s\n%s", pod, got, d, want)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// history is every health that one device of a Pod's container main was seen
// with, in order, without repeats. The returned function ends the watch.
func (s *suite) history(t *testing.T, pod string) func() []corev1.ResourceHealthStatus {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.client.CoreV1().Pods(namespace).Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: pod}))
	must(t, err)
	result := make(chan []corev1.ResourceHealthStatus, 1)
	go func() {
		var seen []corev1.ResourceHealthStatus
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			for _, entry := range entriesOf(p)["main"] {
				for _, r := range entry.Resources {
					if len(seen) == 0 || seen[len(seen)-1] != r.Health {
						seen = append(seen, r.Health)
					}
				}
			}
		}
		result <- seen
	}()
	return func() []corev1.ResourceHealthStatus {
		cancel()
		w.Stop()
		return <-result
	}
}

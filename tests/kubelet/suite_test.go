package kubelet

// This file is the suite: one stack and one real node per Kubernetes version,
// and the tests that share them.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/realnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

const (
	// syncFrequency makes the kubelet look at each Pod every 2 to 3 s. What it
	// does not push shows within that; with its own 60 s it would take up to 90.
	syncFrequency = 2 * time.Second
	// statusFrequency makes it write the Node's allocatable devices each second
	// instead of every 10 s.
	statusFrequency = time.Second
)

// The waits of the suite. A kubelet on a busy machine of two cores needs 1 to 3 s
// for a Pod; what takes longer is broken.
const (
	soon = 40 * time.Second
	// gone covers the 30 s after which the kubelet deletes the slices of a driver
	// that is gone; a plugin's devices it keeps for 10 s.
	gone = 60 * time.Second
)

// test is one entry of the suite: the name says what a user would notice.
type test struct {
	name string
	run  func(*testing.T, *suite)
	// alone is set for one that restarts what the others stand on. Those run
	// first, one after the other; the rest wait for kubelets most of the time, and
	// run side by side.
	alone bool
}

// suite is what the tests of one version share.
type suite struct {
	version string
	stack   *stack.Stack
	node    *realnode.Node
	client  kubernetes.Interface
	serial  atomic.Int64
	// sickbay is set once the facts are stated; it doesn't run beside them.
	sickbay *sickbay
}

// TestOnARealKubelet states what kubelets write, and then shows on them what
// Sickbay makes of it. Shows O1, O2, O4, O5, O8, O11, Q1, R1, R2, U1, U2 and U3.
func TestOnARealKubelet(t *testing.T) {
	realnode.SkipUnlessRoot(t)
	newest := stack.Versions()[len(stack.Versions())-1]
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			s := newSuite(t, version, false)
			t.Run("DRA", func(t *testing.T) { s.run(t, draFacts()) })
			t.Run("device plugin", func(t *testing.T) { s.run(t, pluginFacts()) })
			must(t, s.node.ImportImage(t.Context(), buildImage(t)))
			t.Run("attempts at recovery", func(t *testing.T) { s.run(t, attempts()) })
			s.startSickbay(t, ownWindows())
			t.Run("Sickbay through restarts", s.restarts)
			s.applySickbay(t, shortWindows())
			t.Run("Sickbay's own Pods", func(t *testing.T) { s.run(t, ownPods()) })
			t.Run("Sickbay", func(t *testing.T) { s.run(t, mainJob()) })
			t.Run("Sickbay and device plugins", func(t *testing.T) { s.run(t, pluginJob()) })
			t.Run("Sickbay and watch Pods", func(t *testing.T) { s.run(t, watchJob()) })
			if version == newest {
				t.Run("docs/watch.md", func(t *testing.T) {
					kubectl := s.watchPage(t)
					pages.Run(t, pages.Page{
						Path: "docs/watch.md", Update: *update,
						Env: []string{"KUBECONFIG=" + s.stack.Kubeconfig(), "KUBECACHEDIR=" + t.TempDir(), "PATH=" + kubectl.Folder() + ":" + filepath.Dir(s.sickbay.binary) + ":" + os.Getenv("PATH")},
						Mask: func(line string) string {
							return watchPodName.ReplaceAllString(pages.Masked(line), "watch-gpu-example-com-xxxxx")
						},
					})
					// A Pod outlives its DaemonSet, and its claim wants its driver to be let go.
					within(t, soon, "no watch Pod is left", func(ctx context.Context) error {
						pods, err := s.client.CoreV1().Pods("sickbay-watch").List(ctx, metav1.ListOptions{})
						if err == nil && len(pods.Items) > 0 {
							err = fmt.Errorf("%d are left", len(pods.Items))
						}
						return err
					})
				})
			}
			s.governRecovery(t)
			s.applySickbay(t, recoveryWindows())
			t.Run("Sickbay gives a device back", func(t *testing.T) { comesBackByItsGates(t, s) })
		})
	}
}

// run runs a group, and returns when all of it is done.
func (s *suite) run(t *testing.T, tests []test) {
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			c.run(t, s)
		})
	}
}

// newSuite brings a version's stack and node up. provokes: see stack.Options.
func newSuite(t *testing.T, version string, provokes bool) *suite {
	t.Helper()
	st := stack.Start(t, stack.Options{Kubernetes: version, Temporal: true, SearchAttributes: product.SearchAttributes(), Provokes: provokes})
	n := realnode.Start(t, st, realnode.Options{SyncFrequency: syncFrequency, StatusFrequency: statusFrequency})
	return &suite{version: version, stack: st, node: n, client: n.Client()}
}

// unique makes a name that no other test of the version has.
func (s *suite) unique(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, s.serial.Add(1))
}

// within asks until there is no error, and fails the test with the last one.
func within(t *testing.T, d time.Duration, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %s: %s: %v", d, what, last)
		}
	}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

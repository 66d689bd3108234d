package directory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

func TestMain(m *testing.M) { product.Main(m) }

const fallenOff = "XID 79: GPU has fallen off the bus"

// site is Sickbay as it is deployed, on a control plane with simulated nodes.
type site struct {
	*directory.Directory
	t      *testing.T
	stack  *stack.Stack
	nodes  *simnode.Cluster
	kube   kubernetes.Interface
	server *server
	binary string
}

// newSite has two nodes of four devices each; the starter and the worker run.
func newSite(t *testing.T) *site {
	t.Helper()
	binary, err := product.Shared()
	if err != nil {
		t.Fatal(err)
	}
	st := stack.Start(t, stack.Options{Kubernetes: "1.37", Temporal: true, Redis: true, SearchAttributes: product.SearchAttributes()})
	s := &site{t: t, stack: st, binary: binary, kube: kubernetes.NewForConfigOrDie(st.RESTConfig())}
	s.nodes = simnode.Start(t, st.SimulatorConfig(), simnode.Options{HeartbeatEvery: time.Second})
	if err := s.nodes.Add(t.Context(), simnode.MakeNodes("node", 2, 4)...); err != nil {
		t.Fatal(err)
	}
	client := connect(t, directory.Connection{Kind: directory.KindSingle, Addresses: []string{st.RedisAddress()}})
	s.Directory = directory.New(client, "sickbay")
	s.server = &server{Directory: s.Directory, t: t, stack: st, client: client}
	s.run("worker", "SICKBAY_MODE=enforce", "SICKBAY_RECHECK_FIRST=1s", "SICKBAY_RECHECK_MAX=2s", "SICKBAY_COOL_DOWN=1s")
	s.run("starter", "SICKBAY_MARK_CHECK=1s")
	return s
}

func (s *site) run(command string, env ...string) {
	s.t.Helper()
	_, err := product.Start(s.t.Context(), s.stack, product.Service{
		Binary: s.binary, Command: command, Env: append(env, "SICKBAY_REDIS_ADDRESSES="+s.stack.RedisAddress()),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if log, err := os.ReadFile(s.stack.Log(command)); err == nil && s.t.Failed() {
			lines := strings.Split(string(log), "\n")
			s.t.Logf("%s said last:\n%s", command, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
}

// hold makes a Pod that has a device.
func (s *site) hold(pod string, key device.Key) {
	s.t.Helper()
	if _, err := s.nodes.Place(s.t.Context(), "default", pod, key.Pool, key.Device); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) fail(key device.Key) {
	s.t.Helper()
	if _, err := s.nodes.Set(s.t.Context(), key.Pool, key.Device, corev1.ResourceHealthStatusUnhealthy, fallenOff); err != nil {
		s.t.Fatal(err)
	}
}

// marks lists the marks in the cluster, by name.
func (s *site) marks(ctx context.Context) (map[string]unstructured.Unstructured, error) {
	served, err := kube.Discover(ctx, discovery.NewDiscoveryClientForConfigOrDie(s.stack.RESTConfig()))
	if err != nil {
		return nil, err
	}
	rules, err := dynamic.NewForConfigOrDie(s.stack.RESTConfig()).Resource(served.TaintRules).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]unstructured.Unstructured{}
	for _, rule := range rules.Items {
		all[rule.GetName()] = rule
	}
	return all, nil
}

func (s *site) awaitMark(key device.Key) unstructured.Unstructured {
	s.t.Helper()
	var found unstructured.Unstructured
	eventually(s.t, "a mark of "+key.String(), 30*time.Second, func(ctx context.Context) error {
		all, err := s.marks(ctx)
		if err != nil {
			return err
		}
		var ok bool
		if found, ok = all[kube.MarkName(key)]; !ok {
			return fmt.Errorf("%d marks, none of it", len(all))
		}
		return nil
	})
	return found
}

// awaitEntry waits until a device's entry is as wanted.
func (s *site) awaitEntry(what string, key device.Key, check func(directory.Entry) error) directory.Entry {
	s.t.Helper()
	var found directory.Entry
	eventually(s.t, what, 60*time.Second, func(ctx context.Context) error {
		entry, ok, err := s.Get(ctx, key)
		if err != nil || !ok {
			return fmt.Errorf("there %t, error %v", ok, err)
		}
		found = entry
		return check(entry)
	})
	return found
}

func inForce(e directory.Entry) error {
	if e.Seen == nil || e.Seen.Health != device.Unhealthy || e.Seen.Message != fallenOff {
		return fmt.Errorf("seen %+v", e.Seen)
	}
	if e.Case == nil || e.Case.Phase != quarantine.PhaseQuarantined || e.Case.Mark.State != quarantine.MarkInForce {
		return fmt.Errorf("case %+v", e.Case)
	}
	return nil
}

func simulated(node, name string) device.Key {
	key, err := device.NewDRA(simnode.DefaultDriver, node, name)
	if err != nil {
		panic(err)
	}
	return key
}

// all waits until every device of the site has an entry that is seen.
func (s *site) awaitAll() {
	s.t.Helper()
	eventually(s.t, "every device is in the directory", 60*time.Second, func(ctx context.Context) error {
		n := 0
		for entry, err := range s.List(ctx, directory.Query{Driver: simnode.DefaultDriver}) {
			if err != nil {
				return err
			}
			if entry.Seen == nil || !entry.Seen.Listed {
				return fmt.Errorf("%s isn't listed: %+v", entry.Device, entry.Seen)
			}
			n++
		}
		if n != 8 {
			return fmt.Errorf("%d of 8", n)
		}
		return nil
	})
}

// Healthy devices that nobody holds are there; a fault shows with its case, and a
// case that changes by the clock alone follows. Then Redis is emptied in the middle
// of a case, and killed before another: no decision differs for it.
// Proves a part of K4, and shows invariant 7.
func TestWhateverHappensToRedisNoDecisionChanges(t *testing.T) {
	s := newSite(t)
	s.awaitAll()
	first, second, third := simulated("node-0", "gpu-0"), simulated("node-0", "gpu-1"), simulated("node-1", "gpu-0")
	s.hold("train-0", first)
	s.hold("train-1", second)
	s.hold("train-2", third)
	held := s.awaitEntry("its holder", first, func(e directory.Entry) error {
		if len(e.Seen.Holders) != 1 || e.Seen.Health != device.Healthy || e.Seen.Stale != device.Fresh {
			return fmt.Errorf("seen %+v", e.Seen)
		}
		return nil
	})
	if h := held.Seen.Holders[0]; h.Pod.Name != "train-0" || h.Claim == "" || held.Seen.Version == "" || held.Seen.Observed.IsZero() {
		t.Errorf("seen %+v", held.Seen)
	}
	if held.Seen.Objective != directory.ObjectiveNotConfigured || held.Case != nil {
		t.Errorf("entry %+v; the four signals are apart", held)
	}

	s.fail(first)
	before := s.awaitEntry("the fault and its case", first, inForce)
	mark := s.awaitMark(first)
	if got := listed(t, s.Directory, directory.Query{Phase: string(quarantine.PhaseQuarantined), Node: "node-0"}); len(got) != 1 {
		t.Errorf("%d quarantined devices on node-0, want 1", len(got))
	}

	// Emptied in the middle of the case.
	if err := s.server.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.awaitAll()
	after := s.awaitEntry("the case is there again", first, inForce)
	if after.Case.Epoch != before.Case.Epoch || !after.Case.Since.Equal(before.Case.Since) {
		t.Errorf("case %+v after Redis was emptied, %+v before", after.Case, before.Case)
	}
	if again := s.awaitMark(first); again.GetUID() != mark.GetUID() {
		t.Error("the mark was made anew")
	}

	// Killed before the next one: it is marked all the same.
	if err := s.stack.KillPart(stack.Redis); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.fail(second)
	s.awaitMark(second)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the mark took %s without Redis", took)
	}
	if err := s.stack.StartPart(t.Context(), stack.Redis); err != nil {
		t.Fatal(err)
	}
	s.awaitEntry("what happened meanwhile", second, inForce)

	// The holder leaves; its case goes on, and so does its entry.
	if err := s.kube.CoreV1().Pods("default").Delete(t.Context(), "train-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitEntry("nobody holds it, and the case waits for recovery", second, func(e directory.Entry) error {
		if len(e.Seen.Holders) != 0 {
			return fmt.Errorf("holders %+v", e.Seen.Holders)
		}
		if e.Case == nil || e.Case.Waiting != quarantine.WaitingForRecovery {
			return fmt.Errorf("case %+v", e.Case)
		}
		return nil
	})
	if marks, err := s.marks(t.Context()); err != nil || len(marks) != 2 {
		t.Errorf("%d marks, error %v; want those of two faults", len(marks), err)
	}
}

// rebuild runs `sickbay rebuild` and returns its exit code and what it said.
func (s *site) rebuild(env ...string) (code int, out string) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), s.binary, "rebuild")
	command.Env = slices.Concat(os.Environ(), product.Environment(s.stack), []string{"SICKBAY_REDIS_ADDRESSES=" + s.stack.RedisAddress()}, env)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(output)
}

// Proves a part of K4: the directory comes from cluster, marks and Temporal, and
// from nothing else.
func TestTheDirectoryIsRebuiltFromClusterMarksAndCases(t *testing.T) {
	s := newSite(t)
	s.awaitAll()
	faulty := simulated("node-0", "gpu-0")
	s.hold("train-0", faulty)
	s.fail(faulty)
	s.awaitEntry("the fault and its case", faulty, inForce)

	// Beside a starter that runs, there is nothing to repair, and it takes over again.
	code, out := s.rebuild()
	if code != 0 || !strings.Contains(out, "seen") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}

	if err := s.stack.StopPart(t.Context(), "starter"); err != nil {
		t.Fatal(err)
	}
	want := listed(t, s.Directory, directory.Query{})
	if err := s.server.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if code, out = s.rebuild(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	got := listed(t, s.Directory, directory.Query{})
	if err := differ(said(got), said(want)); err != nil {
		t.Errorf("rebuilt:\n%s\n%v", out, err)
	}
	if c := got[faulty.String()].Case; c == nil || c.Source != directory.SourceWorkflow {
		t.Errorf("case %+v, want what its workflow says", c)
	}

	// Without Temporal the mark tells, and says so.
	for _, part := range []string{"worker", stack.Temporal} {
		if err := s.stack.StopPart(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.server.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if code, out = s.rebuild(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	entry := get(t, s.Directory, faulty)
	if entry.Case == nil || entry.Case.Source != directory.SourceMark || entry.Case.Reason != "XidFallenOffBus" || entry.Seen.Health != device.Unhealthy {
		t.Errorf("entry %+v, case %+v", entry.Seen, entry.Case)
	}

	// Without a cluster nothing is touched.
	if code, out = s.rebuild("SICKBAY_KUBECONFIG=/nowhere"); code != 2 {
		t.Errorf("exit code %d without a kubeconfig:\n%s", code, out)
	}
	if got := listed(t, s.Directory, directory.Query{}); len(got) != 8 {
		t.Errorf("%d devices, want the 8 that were there", len(got))
	}
}

// said is what entries say: without revisions, without what is known only to who
// has watched, and without what a case's clock moves.
func said(entries map[string]directory.Entry) map[string]directory.Entry {
	all := map[string]directory.Entry{}
	for name, e := range entries {
		e.SeenRevision, e.CaseRevision = 0, 0
		if e.Seen != nil {
			s := *e.Seen
			s.Observed, s.Version = time.Time{}, ""
			e.Seen = &s
		}
		if e.Case != nil {
			c := *e.Case
			c.LookedAt, c.Next = time.Time{}, time.Time{}
			e.Case = &c
		}
		all[name] = e
	}
	return all
}

package main

// This file compares two ways to learn which nodes live: to list their Leases every so
// often, as the starter does, and to watch them. Nodes renew theirs meanwhile, from
// another process, so that what the reader takes can be told apart.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

const (
	// heartbeats is how often the starter lists, renewals how often a kubelet renews.
	heartbeats = 15 * time.Second
	renewals   = 10 * time.Second
	renewers   = 32
	// renewVariable makes the process renew Leases and nothing else: it holds a
	// kubeconfig and how many nodes there are.
	renewVariable = "SICKBAY_BENCH_RENEW"
)

// measureLeases measures both ways with each number of nodes, on the real API server.
func measureLeases(ctx context.Context, _, kubernetes string, s sizes) (r report, err error) {
	st, err := stack.Run(ctx, stack.Options{Kubernetes: kubernetes, Logf: progress})
	if err != nil {
		return r, err
	}
	defer stopStack(st)
	return measureLeasesOn(ctx, st, s)
}

func measureLeasesOn(ctx context.Context, st *stack.Stack, s sizes) (r report, err error) {
	r.title = fmt.Sprintf("Leases of nodes, read for %s, Kubernetes %s", s.window, st.KubernetesVersion())
	r.table("nodes", "how", "requests", "received", "reader's CPU", "API server's CPU", "renewals a second meanwhile")
	for _, nodes := range s.leaseNodes {
		progress("%d Leases", nodes)
		renewer, err := startRenewing(ctx, st, nodes)
		if err != nil {
			return r, err
		}
		for _, way := range []struct {
			how  string
			read func(context.Context, *rest.Config) error
		}{{"not at all", readNothing}, {"listed every 15 s", listLeases}, {"watched", watchLeases}} {
			found, err := reading(ctx, st, s.window, renewer, way.read)
			if err != nil {
				return r, fmt.Errorf("%d Leases, %s: %w", nodes, way.how, errors.Join(err, renewer.end()))
			}
			r.row(fmt.Sprint(nodes), append([]string{way.how}, found.cells()...)...)
			if way.how == "listed every 15 s" {
				r.most(fmt.Sprintf("requests for %d Leases", nodes), float64(found.requests), float64(s.window/heartbeats)+1)
			}
		}
		if err := renewer.end(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// took is what one way took.
type took struct {
	requests, received int64
	reader, server     time.Duration
	renewed            float64
}

func (t took) cells() []string {
	return []string{fmt.Sprint(t.requests), size(t.received), t.reader.String(), t.server.String(), fmt.Sprintf("%.0f", t.renewed)}
}

// reading has somebody read for a while, and counts.
func reading(ctx context.Context, st *stack.Stack, window time.Duration, renewer *renewer, read func(context.Context, *rest.Config) error) (took, error) {
	var t took
	var requests, received atomic.Int64
	config := rest.CopyConfig(st.RESTConfig())
	config.QPS = -1
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &countedConn{Conn: conn, read: &received}, err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	before, err := cpuOf(os.Getpid(), st.PID(stack.APIServer))
	if err != nil {
		return t, err
	}
	began, renewed := time.Now(), renewer.count.Load()
	own, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	if err := read(own, config); err != nil {
		return t, err
	}
	after, err := cpuOf(os.Getpid(), st.PID(stack.APIServer))
	if err != nil {
		return t, err
	}
	t.requests, t.received = requests.Load(), received.Load()
	t.reader, t.server = after[0]-before[0], after[1]-before[1]
	t.renewed = float64(renewer.count.Load()-renewed) / time.Since(began).Seconds()
	return t, ctx.Err()
}

func cpuOf(pids ...int) ([]time.Duration, error) {
	var all []time.Duration
	for _, pid := range pids {
		u, err := usageOf(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, u.cpu)
	}
	return all, nil
}

func readNothing(ctx context.Context, _ *rest.Config) error {
	<-ctx.Done()
	return nil
}

// listLeases does what the starter does.
func listLeases(ctx context.Context, config *rest.Config) error {
	leases := kubernetes.NewForConfigOrDie(config).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	tick := time.NewTicker(heartbeats)
	defer tick.Stop()
	for {
		list, err := leases.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && len(list.Items) == 0 {
			return errors.New("there are no Leases")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watchLeases lists once, and follows from there.
func watchLeases(ctx context.Context, config *rest.Config) error {
	leases := kubernetes.NewForConfigOrDie(config).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	list, err := leases.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	w, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	last, changes := map[string]time.Time{}, 0
	for event := range w.ResultChan() {
		if lease, ok := event.Object.(*coordinationv1.Lease); ok && lease.Spec.RenewTime != nil {
			last[lease.Name] = lease.Spec.RenewTime.Time
			changes++
		}
	}
	if changes == 0 {
		return errors.New("no renewal was seen")
	}
	return nil
}

// countedConn counts what comes in over a connection.
type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// renewer is the process that renews Leases.
type renewer struct {
	command *exec.Cmd
	input   io.WriteCloser
	count   atomic.Int64
	reads   sync.WaitGroup
}

// startRenewing makes the Leases and has each renewed, and returns when all are there.
func startRenewing(ctx context.Context, st *stack.Stack, nodes int) (*renewer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &renewer{command: exec.CommandContext(ctx, self)}
	r.command.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", renewVariable, nodes, st.Kubeconfig()))
	r.command.Stderr = os.Stderr
	if r.input, err = r.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := r.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		return nil, fmt.Errorf("the Leases weren't made: %w", errors.Join(lines.Err(), r.command.Wait()))
	}
	r.reads.Go(func() {
		for lines.Scan() {
			if count, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				r.count.Store(count)
			}
		}
	})
	return r, nil
}

// end ends the process: it does so when its input ends.
func (r *renewer) end() error {
	err := r.input.Close()
	r.reads.Wait()
	return errors.Join(err, r.command.Wait())
}

// renewing does what renewVariable says, until standard input ends, and says how many
// renewals there were. It is false in every other process.
func renewing() bool {
	value, told := os.LookupEnv(renewVariable)
	if !told {
		return false
	}
	count, kubeconfig, _ := strings.Cut(value, " ")
	nodes, err := strconv.Atoi(count)
	if err == nil {
		err = renew(kubeconfig, nodes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "renew Leases:", err)
		os.Exit(1)
	}
	return true
}

func renew(kubeconfig string, nodes int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel(nil)
	}()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	var renewed atomic.Int64
	var made, work sync.WaitGroup
	made.Add(renewers)
	for n := range renewers {
		work.Go(func() {
			if err := renewEach(ctx, client, n, nodes, &made, &renewed); err != nil {
				cancel(err)
			}
		})
	}
	made.Wait()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for fmt.Println(renewed.Load()); ; {
		select {
		case <-tick.C:
			fmt.Println(renewed.Load())
		case <-ctx.Done():
			work.Wait()
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		}
	}
}

// renewEach makes every renewers-th Lease, and renews them in turn.
func renewEach(ctx context.Context, client kubernetes.Interface, first, nodes int, made *sync.WaitGroup, renewed *atomic.Int64) error {
	api := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var mine []*coordinationv1.Lease
	err := func() error {
		defer made.Done()
		for n := first; n < nodes; n += renewers {
			name, seconds, now := fmt.Sprintf("renewed-%d", n), int32(40), metav1.NewMicroTime(time.Now())
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}}
			there, err := api.Create(ctx, lease, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				there, err = api.Get(ctx, name, metav1.GetOptions{})
			}
			if err != nil {
				return err
			}
			mine = append(mine, there)
		}
		return nil
	}()
	if err != nil || len(mine) == 0 {
		return err
	}
	tick := time.NewTicker(renewals / time.Duration(len(mine)))
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(mine) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := metav1.NewMicroTime(time.Now())
		next := mine[i].DeepCopy()
		next.Spec.RenewTime = &now
		there, err := api.Update(ctx, next, metav1.UpdateOptions{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		mine[i] = there
		renewed.Add(1)
	}
}

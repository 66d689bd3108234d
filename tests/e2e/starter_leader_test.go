package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/starter"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// Two starters: one sends, the other stands by and takes over when the first ends,
// at the price of at most one signal for each open case. What was queued when the
// first was told to end is sent before it does.
func TestASecondStarterStandsByAndTakesOver(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 4)
	key, later := c.runPod("train-0"), c.runPod("train-1")
	first := c.observe("a")
	c.leads(first)
	second := c.observe("b")
	c.eventually("the second is ready", 20*time.Second, func(context.Context) error { return second.Ready() })
	c.unhealthy(key)
	c.awaitSent(first, 1)
	c.still(second, 0, time.Second, "the first leads")

	c.unhealthy(later)
	first.stop()
	if all := first.spy.all(); len(all) > 2 {
		t.Errorf("the first sent %+v", all)
	}
	begun := time.Now()
	c.leads(second)
	t.Logf("the second led %s after the first had ended", time.Since(begun).Round(time.Millisecond))
	c.eventually("both devices have their case", 20*time.Second, func(ctx context.Context) error {
		for _, k := range []string{key.Device, later.Device} {
			device := key
			device.Device = k
			if running, err := c.cases.Running(ctx, device); err != nil || !running {
				return fmt.Errorf("%s: %t, %w", device, running, errors.Join(err))
			}
		}
		return nil
	})
	c.awaitSent(second, 2)
	c.still(second, 2, 2*time.Second, "one signal for each open case")
}

// A leader that loses its Lease to another stops sending and goes on watching.
func TestALeaderThatLosesItsLeaseStopsSending(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	key := c.runPod("train-0")
	o := c.observe("a")
	c.leads(o)
	leases := c.kube.CoordinationV1().Leases(deploy.Namespace)
	other := "somebody-else"
	c.eventually("the Lease is taken", 10*time.Second, func(ctx context.Context) error {
		lease, err := leases.Get(ctx, "sickbay-starter", getOptions)
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity = &other
		_, err = leases.Update(ctx, lease, updateOptions)
		return err
	})
	c.eventually("it leads no more", 10*time.Second, func(context.Context) error {
		if o.Leading() {
			return errors.New("it leads")
		}
		return nil
	})
	c.unhealthy(key)
	c.still(o, 0, time.Second, "another one leads")
	if err := o.Ready(); err != nil {
		t.Errorf("it doesn't watch any more: %v", err)
	}
	// The other never renews: the Lease runs out, and what happened meanwhile is sent.
	c.leads(o)
	c.awaitSent(o, 1)
}

// O7: an API server that is away makes no device Unknown, missing or gone, neither
// while it is away nor when it is back; what happened meanwhile is seen then.
func TestAnAPIServerThatIsAwayIsNoNews(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 2, 2)
	key := c.runPod("train-0")
	o := c.observe("a")
	c.leads(o)
	if err := c.stack.KillPart(stack.APIServer); err != nil {
		t.Fatal(err)
	}
	c.eventually("the starter says that it is blind", 30*time.Second, func(context.Context) error {
		if o.Ready() == nil {
			return errors.New("it says that it is ready")
		}
		return nil
	})
	c.still(o, 0, 5*time.Second, "the API server is away")
	if err := c.stack.StartPart(t.Context(), stack.APIServer); err != nil {
		t.Fatal(err)
	}
	c.eventually("the starter sees again", 60*time.Second, func(context.Context) error {
		if err := o.Ready(); err != nil {
			return err
		}
		if !o.Leading() {
			return errors.New("it doesn't lead")
		}
		return nil
	})
	c.still(o, 0, 2*time.Second, "the API server is back")
	c.eventually("a fault is written", 20*time.Second, func(ctx context.Context) error {
		_, err := c.nodes.Set(ctx, key.Pool, key.Device, corev1.ResourceHealthStatusUnhealthy, fallenOff)
		return err
	})
	c.awaitSent(o, 1)
}

// Without election the starter leads at once and writes no Lease.
func TestAStarterThatIsAloneWritesNoLease(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 1)
	key := c.runPod("train-0")
	o := c.observe("a", func(o *starter.Options) { o.Alone, o.Identity, o.Namespace = true, "", "" })
	c.leads(o)
	c.unhealthy(key)
	c.awaitSent(o, 1)
	list, err := c.kube.CoordinationV1().Leases(deploy.Namespace).List(t.Context(), listOptions)
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%d Leases, %v; want none", len(list.Items), err)
	}
}

// A starter whose Lease can't be written, because its namespace isn't there, is not
// ready, and says which variable names it; once it is there the starter leads.
func TestAStarterThatCanNeverLeadIsNotReady(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 1)
	binary, err := product.Shared()
	if err != nil {
		t.Fatal(err)
	}
	// The account that is shipped has its Lease in its own namespace only.
	const user = "anywhere"
	c.grantRules(user, append(readRules(), rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update"},
	}))
	kubeconfig, err := c.stack.UserKubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	address, err := product.Start(t.Context(), c.stack, product.Service{
		Binary: binary, Command: "starter", Ready: "/healthz",
		Env: []string{"SICKBAY_KUBECONFIG=" + kubeconfig, "SICKBAY_LEADER_ELECTION_NAMESPACE=nowhere"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ready := func(ctx context.Context) (int, string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return 0, "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		said, err := io.ReadAll(response.Body)
		return response.StatusCode, string(said), err
	}
	c.eventually("it says that it can't lead, and what to do", 20*time.Second, func(ctx context.Context) error {
		code, said, err := ready(ctx)
		if err == nil && (code == http.StatusOK || !strings.Contains(said, "nowhere/sickbay-starter") || !strings.Contains(said, "SICKBAY_LEADER_ELECTION_NAMESPACE")) {
			err = fmt.Errorf("%d: %s", code, said)
		}
		return err
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}}
	if _, err := c.kube.CoreV1().Namespaces().Create(t.Context(), namespace, createOptions); err != nil {
		t.Fatal(err)
	}
	c.eventually("it is ready", 20*time.Second, func(ctx context.Context) error {
		code, said, err := ready(ctx)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d: %s", code, said)
		}
		return err
	})
}

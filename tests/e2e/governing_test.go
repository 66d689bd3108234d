package e2e

// This file runs Sickbay by a policy in the cluster, and lets people make mistakes with it.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// A policy in the cluster holds at once and for cases that are open; a wrong one, and
// its deletion, leave the last good one in force, and a process that begins with a wrong
// one only observes.
func TestThePolicyInTheClusterHolds(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 2, 2)
	observing := slices.DeleteFunc(fastEnvironment(), func(v string) bool { return strings.HasPrefix(v, "SICKBAY_MODE=") })
	worker := c.process("worker", "worker", "", observing...)
	starter := c.process("starter", "starter", "", starterEnvironment()...)
	first, second := c.runPod("train-0"), c.runPod("train-1")

	c.set(first, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitMarkState(first, quarantine.MarkObserved)
	c.awaitPolicyState(worker, "none")

	write := func(text string) {
		t.Helper()
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: deploy.Namespace, Name: policy.ConfigMapName},
			Data:       map[string]string{policy.ConfigMapKey: text},
		}
		maps := c.kube.CoreV1().ConfigMaps(deploy.Namespace)
		if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err == nil {
			return
		}
		if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const head = "apiVersion: sickbay.dev/v1\nkind: Policy\n"
	write(head + "drivers: {" + first.Driver + ": {mode: enforce}}\n")
	c.awaitInForce(first)
	c.awaitPolicyState(starter, "read")

	write(head + "drivers: {" + first.Driver + ": {mode: observe, grase: 1s}}\n")
	c.awaitPolicyState(worker, "refused")
	c.set(second, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitInForce(second)
	c.eventually("an Event tells what is wrong", 20*time.Second, func(ctx context.Context) error {
		events, err := c.kube.CoreV1().Events(deploy.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == policy.ConfigMapName && e.Reason == "PolicyRefused" && strings.Contains(e.Message, "grase: no such field") {
				return nil
			}
		}
		return fmt.Errorf("%d Events, none of them", len(events.Items))
	})

	other := c.process("worker-2", "worker", "", fastEnvironment()...)
	c.awaitPolicyState(other, "refused")
	if said := c.logged("worker-2", "the policy is wrong, and this process knows no earlier one; nothing is enforced until it is mended; `sickbay policy check` tells what is wrong"); len(said) != 1 {
		t.Errorf("a worker that begins with a wrong policy said so %d times", len(said))
	}

	if err := c.kube.CoreV1().ConfigMaps(deploy.Namespace).Delete(t.Context(), policy.ConfigMapName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPolicyState(worker, "deleted")
	rules, err := c.rules(t.Context())
	if err != nil || len(rules) != 2 {
		t.Errorf("%d marks, %v; want both to stand", len(rules), err)
	}
}

func (c *cluster) awaitMarkState(key device.Key, want quarantine.MarkState) {
	c.t.Helper()
	c.awaitCase(key, "mark "+string(want), func(s quarantine.Case) error {
		if s.Mark.State != want {
			return fmt.Errorf("mark %s", s.Mark.State)
		}
		return nil
	})
}

// awaitPolicyState waits until a process says so of the policy's ConfigMap.
func (c *cluster) awaitPolicyState(address, state string) {
	c.t.Helper()
	c.eventually("the policy is "+state, 20*time.Second, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && !strings.Contains(string(text), `sickbay_policy_state{state="`+state+`"} 1`) {
			err = errors.New("it is otherwise")
		}
		return err
	})
}

package e2e

// This file runs Sickbay by a policy in the cluster, and lets people make mistakes with it.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// A policy in the cluster holds at once, by driver and by class, and within seconds for
// open cases that nothing else would wake for an hour; a wrong one, and its deletion, leave
// the last good one in force, and a process that begins with a wrong one only observes.
// `sickbay policy` tells each time what is there, what holds for a device by whose word,
// and what is wrong.
func TestThePolicyInTheClusterHolds(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 2, 2)
	observing := slices.DeleteFunc(fastEnvironment(), func(v string) bool {
		return strings.HasPrefix(v, "SICKBAY_MODE=") || strings.HasPrefix(v, "SICKBAY_RECHECK_")
	})
	observing = append(observing, "SICKBAY_RECHECK_FIRST=1h", "SICKBAY_RECHECK_MAX=1h", "SICKBAY_BUDGET_CLASS=none", "SICKBAY_BUDGET_CLUSTER=none")
	worker := c.process("worker", "worker", "", observing...)
	starter := c.process("starter", "starter", "", starterEnvironment()...)
	first, second := c.runPod("train-0"), c.runPod("train-1")
	const rare = "rare-gpus"
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: rare}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + first.Driver + `"`}},
	}}}
	if _, err := c.kube.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	third := c.runPodOf("train-2", rare)
	o := c.operator()
	// A person's kubeconfig names another namespace than Sickbay's.
	o.wants("no policy", o.types(o.binary, "policy", "show"), 0, "there is no ConfigMap default/sickbay-policy and no "+deploy.Namespace+"/sickbay-policy; the environment of starter and workers holds")

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

	o.wants("the policy", o.types(o.binary, "policy", "show"), 0, "ConfigMap "+deploy.Namespace+"/sickbay-policy, version ", first.Driver+":", "mode: enforce")

	// By class: the one that was asked for by name is only observed, until that changes.
	byClass := func(mode string) string {
		return head + "mode: enforce\nclasses: {" + rare + ": {mode: " + mode + ", quarantine: {grace: 7m}}}\n"
	}
	write(byClass("observe"))
	o.wants("what holds for a device of the class", o.types(o.binary, "policy", "explain", third.String()), 0,
		third.String()+", of class "+rare, "observe", "classes["+rare+"]", "7m")
	o.wants("and for another", o.types(o.binary, "policy", "explain", first.String(), "-o", "json"), 0, `"enforce"`)
	o.wants("and for none", o.types(o.binary, "policy", "explain", first.Driver+"/node-7/gpu-0"), 4, "no device is called", "--class tells its classes without asking")
	c.eventually("the worker has it", 20*time.Second, func(context.Context) error {
		if said := c.logged("worker", "policy in force"); len(said) < 2 {
			return fmt.Errorf("it had %d", len(said))
		}
		return nil
	})
	c.set(third, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitMarkState(third, quarantine.MarkObserved)
	write(byClass("enforce"))
	c.awaitInForce(third)

	wrong := head + "drivers: {" + first.Driver + ": {mode: observe, grase: 1s}}\n"
	write(wrong)
	c.awaitPolicyState(worker, "refused")
	const mistake = "drivers[gpu.example.com].grase: no such field"
	o.wants("a wrong one, shown", o.types(o.binary, "policy", "show"), 2, "ConfigMap "+deploy.Namespace+"/sickbay-policy: line 3: "+mistake)
	o.wants("a wrong one, explained", o.types(o.binary, "policy", "explain", first.String()), 2, mistake, "processes that read an earlier one go by that")
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string]answer{wrong: {code: 2, err: mistake}, byClass("observe"): {code: 0, out: "a policy with mode enforce"}} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.wants("what is checked before", o.types(o.binary, "policy", "check", file), want.code, want.out+want.err)
	}
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
	if err != nil || len(rules) != 3 {
		t.Errorf("%d marks, %v; want all to stand", len(rules), err)
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

package e2e

// This file has whole nodes isolated by a policy, and given back.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
)

// govern writes the policy.
func (c *cluster) govern(text string) {
	c.t.Helper()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: deploy.Namespace, Name: policy.ConfigMapName},
		Data:       map[string]string{policy.ConfigMapKey: "apiVersion: " + policy.APIVersion + "\nkind: " + policy.Kind + "\n" + text},
	}
	maps := c.kube.CoreV1().ConfigMaps(deploy.Namespace)
	if _, err := maps.Update(c.t.Context(), object, updateOptions); err == nil {
		return
	}
	if _, err := maps.Create(c.t.Context(), object, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// patchNode changes a node by hand, as an administrator.
func (c *cluster) patchNode(name, patch string, subresources ...string) {
	c.t.Helper()
	form := types.MergePatchType
	if len(subresources) > 0 {
		form = types.StrategicMergePatchType // what others say of its status stays
	}
	_, err := c.kube.CoreV1().Nodes().Patch(c.t.Context(), name, form, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		c.t.Fatal(err)
	}
}

// awaitNode waits until a node is as it should be.
func (c *cluster) awaitNode(what, name string, check func(*corev1.Node) error) *corev1.Node {
	c.t.Helper()
	var node *corev1.Node
	c.eventually(what, 40*time.Second, func(ctx context.Context) (err error) {
		if node, err = c.kube.CoreV1().Nodes().Get(ctx, name, getOptions); err != nil {
			return err
		}
		if err := check(node); err != nil {
			return fmt.Errorf("%w; it has taints %v, unschedulable %t, annotation %q", err, node.Spec.Taints, node.Spec.Unschedulable, node.Annotations[kube.AnnotationIsolated])
		}
		return nil
	})
	return node
}

// isolatedBy wants a node isolated by Sickbay in a way, with words in its reason.
func isolatedBy(way isolation.Way, since time.Time, words ...string) func(*corev1.Node) error {
	return func(node *corev1.Node) error {
		mark, ours := kube.ReadNodeMark(node, 0)
		switch {
		case !ours || !mark.Found.Whole || mark.Found.Way != way:
			return fmt.Errorf("it isn't isolated by a %s", way)
		case (way == isolation.Cordon) != node.Spec.Unschedulable || (way == isolation.Taint) != (ourTaint(node) == strconv.FormatInt(mark.Found.Epoch, 10)):
			return errors.New("it is isolated in two ways")
		case mark.Found.Since.Before(since):
			return fmt.Errorf("it is since %s, before %s", mark.Found.Since, since)
		}
		for _, word := range words {
			if !strings.Contains(mark.Found.Why, word) {
				return fmt.Errorf("why is %q, without %q", mark.Found.Why, word)
			}
		}
		return nil
	}
}

// givenBack wants nothing of Sickbay's on a node, and somebody else's cordon if there was one.
func givenBack(theirs bool) func(*corev1.Node) error {
	return func(node *corev1.Node) error {
		if ourTaint(node) != "" || node.Annotations[kube.AnnotationIsolated] != "" || node.Spec.Unschedulable != theirs {
			return errors.New("it isn't given back")
		}
		return nil
	}
}

func ourTaint(node *corev1.Node) string {
	for _, t := range node.Spec.Taints {
		if t.Key == kube.NodeTaintKey {
			return t.Value
		}
	}
	return ""
}

// unscheduled tells whether the scheduler finds no node for a Pod.
func unscheduled(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}

// metric reads one line of a process's metrics.
func (c *cluster) awaitMetric(address, line string) {
	c.t.Helper()
	c.eventually("metrics say "+line, 60*time.Second, func(ctx context.Context) error {
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
		if err == nil && !strings.Contains(string(text), line) {
			err = errors.New("they don't")
		}
		return err
	})
}

// Q2. A node of which most devices are faulty is isolated by a taint where the policy says
// so, with the reason on it; nothing new is scheduled there, what somebody takes off by hand
// is put back, another way is changed to, and without the marks it is given back. Somebody
// else's cordon stays theirs. A node whose Lease stands still is left alone, whatever the
// API says of it; back again, it is isolated for its own condition, which the record names, and
// an operator's word has it given back all the same.
// Taken out of the policy, it is given back.
func TestAWholeNodeIsIsolatedByPolicyAlone(t *testing.T) {
	c := startWith(t, stack.Options{
		Kubernetes: "1.37", Temporal: true,
		DynamicConfig: map[string]any{"limit.historyCount.suggestContinueAsNew": 80},
	}, 2, 2, deploy.Enforce, deploy.NodeIsolation)
	var keys []device.Key
	for n := range 4 {
		node, gpu := fmt.Sprintf("node-%d", n/2), fmt.Sprintf("gpu-%d", n%2)
		if _, err := c.nodes.Place(t.Context(), "default", fmt.Sprintf("train-%d", n), node, gpu); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, device.Key{Driver: simnode.DefaultDriver, Pool: node, Device: gpu})
	}
	const budgets = "mode: enforce\nbudgets: {cluster: {none: true}, class: {none: true}}\n"
	const nodes = "nodes: {isolate: %s, conditions: [GpuRackFault], calm: 3s}\n"
	c.govern(budgets + fmt.Sprintf(nodes, "taint"))
	c.process("worker", "worker", "", fastEnvironment()...)
	starter := c.process("starter", "starter", "", append(starterEnvironment(), "SICKBAY_HEARTBEAT_LIMIT=30s", "SICKBAY_NODE_RETURN=2s", "SICKBAY_CROWD_DEVICES=1000")...)
	o := c.operator()
	if err := c.nodes.Outage("node-1"); err != nil {
		t.Fatal(err)
	}

	for _, key := range keys[:2] {
		c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	}
	first := c.awaitNode("node-0 is tainted", "node-0", isolatedBy(isolation.Taint, time.Time{}, "2 of the node's 2 devices are faulty", keys[0].String()+" (XidFallenOffBus)"))
	c.eventually("the budgets count each device once", 20*time.Second, func(context.Context) error {
		b, err := o.budgets()
		if err != nil {
			return err
		}
		for _, row := range b.Scopes {
			if row.Scope.String() == "node/node-0" && row.Used != 2 {
				return fmt.Errorf("used %+v", b.Scopes)
			}
		}
		return nil
	})
	pod := simnode.MakePod("default", "late").Obj()
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-0"}
	if _, err := c.kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.nodes.AwaitPod(waiting, "default", "late", unscheduled); err != nil {
		t.Fatalf("a Pod on a node that is isolated: %v", err)
	}
	o.wants("the devices", o.types(o.binary, "devices"), 0, "1 node is isolated by Sickbay: node-0 (taint)")
	o.wants("a device of the node", o.types(o.binary, "device", keys[0].String()), 0, "The whole node is isolated", "node-0, by a taint of Sickbay's", "2 of the node's 2 devices are faulty")
	o.wants("the trail", o.types(o.binary, "audit", "--kind", "NodeIsolated"), 0, "node/node-0", "2 of the node's 2 devices")

	// Taken off by hand, it is put back under the same epoch, and told.
	value := ourTaint(first)
	c.patchNode("node-0", `{"spec":{"taints":null}}`)
	back := c.awaitNode("the taint is put back", "node-0", isolatedBy(isolation.Taint, time.Time{}))
	if ourTaint(back) != value {
		t.Errorf("put back as %s, and was %s", ourTaint(back), value)
	}
	o.wants("the trail", o.types(o.binary, "audit", "--kind", "NodePutBack"), 0, "somebody took away what isolates node node-0")

	// Another way, and a cordon that somebody takes away.
	c.govern(budgets + fmt.Sprintf(nodes, "cordon"))
	c.awaitNode("node-0 is cordoned instead", "node-0", isolatedBy(isolation.Cordon, time.Time{}))
	c.patchNode("node-0", `{"spec":{"unschedulable":null}}`)
	c.awaitNode("the cordon is put back", "node-0", isolatedBy(isolation.Cordon, time.Time{}))

	// Without faulty devices it is given back, and scheduled to.
	c.heal(keys[:2]...)
	c.awaitNode("node-0 is given back", "node-0", givenBack(false))
	running, cancelRunning := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancelRunning()
	if _, err := c.nodes.AwaitPod(running, "default", "late", simnode.Running); err != nil {
		t.Errorf("a Pod on a node that is given back: %v", err)
	}

	// Somebody cordons it, and devices of it are faulty again.
	c.patchNode("node-0", `{"spec":{"unschedulable":true}}`)
	for _, key := range keys[:2] {
		c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	}
	own := nodewf.NewClient(c.temporal, taskQueue)
	c.eventually("it is told that somebody else keeps node-0 out", 40*time.Second, func(ctx context.Context) error {
		state, err := own.State(ctx, "node-0")
		if err == nil && state.Isolation.Waiting != isolation.WaitsOthers {
			err = fmt.Errorf("%s waits for %q", state.Isolation.Phase, state.Isolation.Waiting)
		}
		return err
	})
	c.awaitNode("somebody's cordon is nothing of Sickbay's", "node-0", givenBack(true))

	// The other node is out by now, and nothing isolates it, whatever is written there.
	c.awaitMetric(starter, `sickbay_nodes_out{verdict="Outage"} 1`)
	rackFault := func(status string) {
		c.patchNode("node-1", `{"status":{"conditions":[{"type":"GpuRackFault","status":"`+status+`","reason":"BackplaneDown","message":"slot 3"}]}}`, "status")
	}
	rackFault("True")
	recovered := time.Now()
	if err := c.nodes.Recover(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	c.awaitNode("node-1 is isolated for its own condition, and wasn't while it was out", "node-1", isolatedBy(isolation.Cordon, recovered, "GpuRackFault is True", "BackplaneDown: slot 3"))
	for _, line := range c.logged("worker", "node isolated") {
		if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(line["time"])); line["node"] == "node-1" && (err != nil || at.Before(recovered)) {
			t.Errorf("node-1 was isolated at %v, while it was out: %v", line["time"], line)
		}
	}

	// An operator has it given back although its condition holds. It is left alone until
	// that doesn't hold any more; what comes then is new.
	lift := []string{"lift", "node-1", "--actor", "oncall@example.com", "--reason", "the rack is fine, the detector isn't"}
	o.wants("a lift without a reason", o.types(o.binary, "lift", "node-1"), 2, "say why with --reason")
	o.wants("a lift of a node that nothing isolates", o.types(o.binary, "lift", "node-7", "--reason", "x", "--actor", "x"), 4, "node-7: nothing isolates the node")
	o.wants("the lift", o.types(o.binary, lift...), 0, "lift accepted for node node-1; it is left alone until nothing justifies its isolation")
	c.awaitNode("node-1 is given back on an operator's word", "node-1", givenBack(false))
	c.eventually("node-1 is left alone", 20*time.Second, func(ctx context.Context) error {
		state, err := own.State(ctx, "node-1")
		if err == nil && state.Isolation.Phase != isolation.Spared {
			err = fmt.Errorf("it is %s", state.Isolation.Phase)
		}
		return err
	})
	o.wants("another lift", o.types(o.binary, lift...), 1, "it is lifted already")
	rackFault("False")
	c.eventually("it is over with node-1", 40*time.Second, func(ctx context.Context) error {
		state, err := own.State(ctx, "node-1")
		if err == nil && state.Isolation.Open() {
			err = fmt.Errorf("it is %s", state.Isolation.Phase)
		}
		return err
	})
	rackFault("True")
	c.awaitNode("node-1 is isolated for a new fault", "node-1", isolatedBy(isolation.Cordon, recovered, "GpuRackFault is True"))

	// Taken out of the policy, what is Sickbay's goes, and what is others' stays.
	c.govern(budgets)
	c.awaitNode("node-1 is given back", "node-1", givenBack(false))
	c.awaitNode("somebody's cordon stays", "node-0", givenBack(true))
}

// heal has devices well again and their cases forgotten, as nothing in this version does by
// itself: their drivers say so, their workflows are ended, and their marks removed by hand.
func (c *cluster) heal(keys ...device.Key) {
	c.t.Helper()
	for _, key := range keys {
		c.set(key, corev1.ResourceHealthStatusHealthy, "")
	}
	for _, key := range keys {
		c.awaitCase(key, "knows that its device is well", func(s quarantine.Case) error {
			if s.Evidence().Value != device.Healthy {
				return fmt.Errorf("it is %s", s.Evidence().Value)
			}
			return nil
		})
		if err := c.temporal.TerminateWorkflow(c.t.Context(), devicewf.ID(key), "", "to have its device back"); err != nil {
			c.t.Fatal(err)
		}
		c.deleteRule(kube.MarkName(key))
	}
}

package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/simnode"
)

const (
	namespace = "default"
	// jobsPerNode is how many Pods with one device each a node begins with.
	jobsPerNode = 2
)

// fill starts the Pods that hold devices from the beginning. The first job of each
// node runs before the second begins, so that which device each has doesn't depend on
// chance: docs/cli.md shows them by name.
func (d *demo) fill(ctx context.Context) error {
	for i := range jobsPerNode {
		for _, node := range d.nodes.Nodes() {
			if err := d.makeJob(ctx, jobName(node, i), node); err != nil {
				return err
			}
		}
		for _, node := range d.nodes.Nodes() {
			if _, err := d.nodes.AwaitPod(ctx, namespace, jobName(node, i), simnode.Running); err != nil {
				return err
			}
		}
	}
	return nil
}

func jobName(node string, i int) string { return fmt.Sprintf("job-%s-%d", node, i) }

// makeJob makes a Pod on a node, with one device through a claim of its own.
func (d *demo) makeJob(ctx context.Context, name, node string) error {
	claim := simnode.MakeClaim(namespace, name).Request("gpu", simnode.DefaultDriver, 1).Obj()
	if _, err := d.clients.Kubernetes.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make claim %s: %w", name, err)
	}
	pod := simnode.MakePod(namespace, name).Claim("gpu", name).OnNode(node).Obj()
	if _, err := d.clients.Kubernetes.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make Pod %s: %w", name, err)
	}
	return nil
}

// deviceOf is the device that a job's claim has.
func (d *demo) deviceOf(ctx context.Context, job string) (device.Key, error) {
	claim, err := d.clients.Kubernetes.ResourceV1().ResourceClaims(namespace).Get(ctx, job, metav1.GetOptions{})
	if err != nil {
		return device.Key{}, fmt.Errorf("read claim %s: %w", job, err)
	}
	results := kube.ClaimView(claim).Results
	if len(results) != 1 {
		return device.Key{}, fmt.Errorf("claim %s has %d devices, want 1", job, len(results))
	}
	return results[0].Device, nil
}

// endJob deletes a job's Pod and waits until it is gone.
func (d *demo) endJob(ctx context.Context, name string) error {
	if err := d.clients.Kubernetes.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete Pod %s: %w", name, err)
	}
	_, err := d.nodes.AwaitPod(ctx, namespace, name, simnode.Gone)
	return err
}

package simnode

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slots is into how many parts the heartbeat period is cut. Nodes are spread
// over them, so that a thousand renewals make a stream and not a wave.
const slots = 100

// heartbeats calls every member once a period, from a few goroutines.
type heartbeats struct {
	every time.Duration

	mu    sync.Mutex // guards the fields below
	next  int        // slot of the next new member
	slots [slots][]*node
}

func newHeartbeats(every time.Duration) *heartbeats { return &heartbeats{every: every} }

func (h *heartbeats) add(n *node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots[h.next%slots] = append(h.slots[h.next%slots], n)
	h.next++
}

func (h *heartbeats) remove(n *node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, members := range h.slots {
		for j, member := range members {
			if member == n {
				h.slots[i] = append(members[:j:j], members[j+1:]...)
				return
			}
		}
	}
}

// run calls beat for the members of one slot after the other until ctx ends. If
// the API server is too slow for the period, a renewal is left out rather than
// queued: late ones would only come later and later.
func (h *heartbeats) run(ctx context.Context, beat func(context.Context, *node)) {
	due := make(chan *node, slots)
	var workers sync.WaitGroup
	for range nodeWorkers {
		workers.Go(func() {
			for n := range due {
				beat(ctx, n)
			}
		})
	}
	defer workers.Wait()
	defer close(due)
	ticker := time.NewTicker(h.every / slots)
	defer ticker.Stop()
	for slot := 0; ; slot = (slot + 1) % slots {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		h.mu.Lock()
		members := append([]*node(nil), h.slots[slot]...)
		h.mu.Unlock()
		for _, n := range members {
			select {
			case due <- n:
			default:
			}
		}
	}
}

// statusEvery is after how many renewals the node's status is posted although it
// did not change: 5 minutes at 10 s, as the kubelet's nodeStatusReportFrequency.
const statusEvery = 30

// beat renews a node's Lease, unless the node is out. A failed renewal is left
// to the next one, as a kubelet whose API server is away does.
func (c *Cluster) beat(ctx context.Context, n *node) {
	n.renewing.Lock()
	defer n.renewing.Unlock()
	c.mu.Lock()
	out, lease := n.out || n.deleted, n.lease
	c.mu.Unlock()
	if out {
		return
	}
	renewed, err := c.renew(ctx, n, lease)
	if err != nil {
		renewed = nil // read it again next time
	}
	c.mu.Lock()
	n.lease = renewed
	c.mu.Unlock()
	if n.beats++; n.beats%statusEvery == 0 {
		_ = c.writeNode(ctx, n) // likewise left to the next time
	}
}

// renew updates the Lease, or takes it over or creates it where it is unknown.
func (c *Cluster) renew(ctx context.Context, n *node, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := c.client.CoordinationV1().Leases(leaseNamespace)
	now := metav1.NewMicroTime(time.Now())
	if lease == nil {
		existing, err := leases.Get(ctx, n.spec.Name, metav1.GetOptions{})
		if err != nil {
			return leases.Create(ctx, n.newLease(now), metav1.CreateOptions{})
		}
		lease = existing
	}
	lease = lease.DeepCopy()
	lease.Spec.RenewTime = &now
	return leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// newLease has the node as its owner, so that it goes with it (KEP-589).
func (n *node) newLease(now metav1.MicroTime) *coordinationv1.Lease {
	seconds := int32(leaseSeconds)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.spec.Name, Namespace: leaseNamespace,
			OwnerReferences: []metav1.OwnerReference{n.owner()},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &n.spec.Name, LeaseDurationSeconds: &seconds, RenewTime: &now,
		},
	}
}

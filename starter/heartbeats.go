package starter

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// leases is the name by which the eyes know the Leases of nodes.
const leases = "leases"

// heartbeats lists the Leases of all nodes every so often, while this starter leads and
// any node has devices that something is known of: four requests a minute, answered from
// the API server's cache. A watch would bring every renewal of every node, which takes the
// starter many times as much (docs/decisions/0012 has what was measured).
type heartbeats struct {
	leases  coordinationv1.LeaseInterface
	tracker *tracker
	eyes    *eyes
	clock   clock.WithTicker
	every   time.Duration
	limit   time.Duration
}

func (h *heartbeats) run(ctx context.Context) {
	defer h.forget()
	ticker := h.clock.NewTicker(h.every)
	defer ticker.Stop()
	for {
		if h.tracker.wantsLeases() {
			h.list(ctx)
		} else {
			h.forget()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (h *heartbeats) forget() {
	h.tracker.leasesForgotten()
	h.eyes.closed(leases)
}

func (h *heartbeats) list(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	list, err := h.leases.List(call, metav1.ListOptions{ResourceVersion: "0"})
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		h.eyes.missed(leases, leaseTrouble(err))
		h.tracker.leasesMissed()
		return
	}
	renewed := make(map[string]lease, len(list.Items))
	for _, l := range list.Items {
		if l.Spec.RenewTime != nil {
			renewed[l.Name] = lease{renewed: l.Spec.RenewTime.UTC().Format(time.RFC3339Nano), version: device.Version(l.ResourceVersion)}
		}
	}
	if h.tracker.leasesListed(renewed, device.Version(list.ResourceVersion)) {
		h.eyes.opened(leases)
		return
	}
	h.eyes.missed(leases, errors.New("can't tell which nodes live: the API server gives the same Leases as the last time, its view of the cluster stands still"))
}

// leaseTrouble says what doesn't work while the Leases can't be listed.
func leaseTrouble(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: can't list leases in %s, so nodes are judged by their condition Ready alone; grant the starter's service account the verb list on leases there: %w",
			ErrForbidden, corev1.NamespaceNodeLease, err)
	}
	return fmt.Errorf("can't list leases in %s, so that a node that falls silent shows late: %w", corev1.NamespaceNodeLease, err)
}

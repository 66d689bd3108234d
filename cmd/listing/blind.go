package listing

// This file is about what Sickbay itself can't see. An answer that is whole may still
// mislead whoever reads it while nobody watches: no case is opened then, and what is
// decided is old. That is said above the answer, whatever it was read from.

import (
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/directory"
)

const (
	// leaseLimit bounds the reading of the starters' Lease: it only adds a line.
	leaseLimit = 5 * time.Second
	// leaseLook is the pause between two readings of a Lease that seems to stand still,
	// and leaseLooks how many there are: a starter renews it every second.
	leaseLook  = 500 * time.Millisecond
	leaseLooks = 6
)

// Election is the Lease by which one of several starters is the active one.
type Election struct {
	// Namespaces are where it may be, the likeliest first.
	Namespaces []string
	Name       string
	// Sure tells that it has to be in the first of them, if any starter ever ran.
	Sure bool
}

// Leader says in one line that no starter leads; empty where one does, and where it
// can't be told, for want of the right to read the Lease or because it is elsewhere.
func (e Election) Leader(ctx context.Context, client kubernetes.Interface, now time.Time) string {
	ctx, cancel := context.WithTimeout(ctx, leaseLimit)
	defer cancel()
	for _, namespace := range e.Namespaces {
		leases := client.CoordinationV1().Leases(namespace)
		lease, err := leases.Get(ctx, e.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if e.Sure {
				return fmt.Sprintf("no starter has ever led: there is no Lease %s/%s; %s", namespace, e.Name, withoutStarter)
			}
			continue
		}
		if err != nil {
			return ""
		}
		return silent(lease, now, func() (*coordinationv1.Lease, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(leaseLook):
			}
			return leases.Get(ctx, e.Name, metav1.GetOptions{})
		})
	}
	return ""
}

// withoutStarter is what an answer lacks while no starter leads.
const withoutStarter = "faults since then have no case, and nobody watches; start one (sickbay starter)"

// silent says that nobody renews a Lease. Its time is another machine's: where that
// seems to be long ago, or yet to come, a change that is seen here counts: again reads
// it some time later.
func silent(lease *coordinationv1.Lease, now time.Time, again func() (*coordinationv1.Lease, error)) string {
	name := lease.Namespace + "/" + lease.Name
	if lease.Spec.RenewTime == nil {
		return ""
	}
	renewed := lease.Spec.RenewTime.Time
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder == "" {
		return fmt.Sprintf("no starter leads since %s, when the last one gave Lease %s up; %s", stamp(renewed), name, withoutStarter)
	}
	var duration time.Duration
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		duration = time.Duration(*seconds) * time.Second
	}
	if now.Sub(renewed).Abs() <= duration {
		return ""
	}
	for range leaseLooks {
		read, err := again()
		if err != nil || read.Spec.RenewTime == nil || !read.Spec.RenewTime.Equal(lease.Spec.RenewTime) {
			return ""
		}
	}
	return fmt.Sprintf("no starter leads since %s, when Lease %s was last renewed; %s", stamp(renewed), name, withoutStarter)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// Sight says in lines what the starter that writes the directory can't see, and that
// none does.
func Sight(shards []directory.Status, now time.Time) []string {
	var lines []string
	var blind string
	beat := oldestBeat(shards, now)
	for _, s := range shards {
		blind = cmp.Or(blind, s.Blind)
	}
	switch age := now.Sub(beat); {
	case beat.IsZero():
		lines = append(lines, "no starter has written the directory yet")
	case age > beatLimit:
		lines = append(lines, fmt.Sprintf("no starter has written the directory for %s: what is seen may be older than that", age.Round(time.Second)))
	}
	if blind != "" {
		lines = append(lines, "the starter that leads can't see everything: "+blind)
	}
	return lines
}

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/device"
)

const (
	// directoryLimit and temporalLimit bound questions whose answer only adds a line.
	directoryLimit = time.Second
	temporalLimit  = 2 * time.Second
	// shippedNamespace is where deploy/base puts Sickbay, and shippedProbes where
	// devices are proven healthy.
	shippedNamespace = "sickbay"
	shippedProbes    = "sickbay-probes"
)

// sight is what Sickbay itself can't see while a command answers: an answer that is
// whole may still mislead whoever reads it.
type sight struct {
	blind []string
	// notes say what doesn't make the answer any worse.
	notes []string
}

// election is where the starters' Lease may be.
func election(set config.LeaderElection, own string) *listing.Election {
	switch {
	case !set.Enabled:
		return nil // the only starter writes nothing into the cluster
	case set.Namespace != "":
		return &listing.Election{Namespaces: []string{set.Namespace}, Name: set.Name, Sure: true}
	}
	return &listing.Election{Namespaces: slices.Compact([]string{own, shippedNamespace}), Name: set.Name}
}

// oursIn is where Sickbay's own claims and Pods are.
func oursIn(set config.ProbePlace) device.Ours {
	return device.Ours(cmp.Or(set.ProbeNamespace, shippedProbes))
}

// look begins to find out what Sickbay can't see, beside the answer itself from the
// cluster, and returns what waits for it.
func (s *sources) look(ctx context.Context) func() sight {
	var found sight
	var leader string
	var looks sync.WaitGroup
	looks.Go(func() { leader = s.leader(ctx) })
	looks.Go(func() {
		if s.directory == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, directoryLimit)
		defer cancel()
		shards, err := s.directory.Status(ctx)
		if err != nil {
			found.notes = []string{fmt.Sprintf("the device directory is away (%v); this answer is from the cluster, its marks and Temporal, and lacks nothing by that", err)}
			return
		}
		found.blind = listing.Sight(shards, time.Now())
	})
	return func() sight {
		looks.Wait()
		if leader != "" {
			found.blind = slices.Concat([]string{leader}, found.blind)
		}
		return found
	}
}

// leader says that no starter leads.
func (s *sources) leader(ctx context.Context) string {
	if s.election == nil {
		return ""
	}
	return s.election.Leader(ctx, s.clients.Kubernetes, time.Now())
}

// temporalSight says that Temporal is away, to whoever isn't answered by it. Who never
// said where Temporal is has nothing to do with it.
func (s *sources) temporalSight(ctx context.Context) []string {
	if _, named := os.LookupEnv("SICKBAY_TEMPORAL_ADDRESS"); !named {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, temporalLimit)
	defer cancel()
	if _, err := s.temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return []string{fmt.Sprintf("Temporal is away, so no case goes on, and what is shown of cases may be old: %v", err)}
	}
	return nil
}

// warn says above an answer what may be wrong with it, and returns errPartial if it
// lacks something.
func warn(streams Streams, blind, problems []string) error {
	for _, said := range blind {
		fmt.Fprintln(streams.Err, "sickbay: Sickbay itself can't see:", said)
	}
	for _, said := range problems {
		fmt.Fprintln(streams.Err, "sickbay:", said)
	}
	if len(problems) > 0 {
		return errPartial
	}
	return nil
}

// note says below an answer what else is worth knowing.
func note(streams Streams, notes []string) {
	for _, said := range notes {
		fmt.Fprintln(streams.Err, "sickbay:", said)
	}
}

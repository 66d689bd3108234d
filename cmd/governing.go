package cmd

// This file sets up how a service knows the policy.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/policywatch"
)

// governing is the policy as a service knows it.
type governing struct {
	watch     *policywatch.Watch
	namespace string
	log       *slog.Logger
}

// watchPolicy prepares it.
func watchPolicy(place config.PolicyPlace, base policy.Base, c cluster, events bool, log *slog.Logger, metrics prometheus.Registerer) (governing, error) {
	namespace := cmp.Or(place.PolicyNamespace, c.namespace)
	watch, err := policywatch.New(policywatch.Options{
		Kubernetes: c.typed, Namespace: namespace, Base: base, Log: log, Registerer: metrics, Events: events,
	})
	if err != nil {
		return governing{}, fmt.Errorf("register metrics: %w", err)
	}
	return governing{watch, namespace, log}, nil
}

// known is met once it is known what holds.
func (g governing) known() condition {
	return condition{"policy", func(context.Context) error {
		if g.watch.Status().State == policywatch.Waiting {
			return errors.New("it isn't known yet which policy holds")
		}
		return nil
	}}
}

// Saying implements starter.Governed.
func (g governing) Saying() (any, func(string, []string) string) {
	held := g.watch.Current()
	return held, held.Saying
}

// policyWait is how long work waits for the policy. Cases go on without it, and without
// an API server: their owners' questions are answered, and nothing is made.
const policyWait = 10 * time.Second

// during watches while the work is done. Work that waits begins once it is known what
// holds, or a while later.
func (g governing) during(work func(context.Context) error, waits bool) func(context.Context) error {
	return func(ctx context.Context) error {
		watching, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.watch.Run(watching)
		}()
		defer func() {
			stop()
			<-ended
		}()
		if waits {
			waiting, stopWaiting := context.WithTimeout(ctx, policyWait)
			err := g.watch.Await(waiting)
			stopWaiting()
			if ctx.Err() != nil {
				return err
			}
			if err != nil {
				g.log.Warn("it isn't known yet which policy holds; cases go on, and nothing is enforced until it is", "waited", policyWait.String())
			}
		}
		return work(ctx)
	}
}

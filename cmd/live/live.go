// Package live shows a listing of devices on a screen and keeps it current, until
// it is told to end.
//
// It owns the loop: what changes in the cluster is drawn soon, Temporal is asked
// at a pace that is no load. What is shown comes from package listing, how it
// looks is package show's. It only ever reads.
package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/show"
)

const (
	// readLimit bounds the first reading of the cluster.
	readLimit = 60 * time.Second
	// casesEvery is the pause between two questions to Temporal, and queries how
	// many workflows are asked each time: watching must not be a load.
	casesEvery = 2 * time.Second
	queries    = 20
	// redrawEvery is how often at least the screen is drawn, so that ages go on,
	// and redrawAfter how long changes are gathered before they are drawn.
	redrawEvery = time.Second
	// sightEvery is the pause between two questions what Sickbay itself can't see.
	sightEvery  = 10 * time.Second
	redrawAfter = 200 * time.Millisecond
)

// Options is what to show and where.
type Options struct {
	Clients   listing.Clients
	Temporal  client.Client
	Namespace string
	Filter    listing.Filter
	Order     listing.Order
	Screen    *show.Screen
	// Blind says what Sickbay itself can't see; it is asked from time to time. May be nil.
	Blind func(context.Context) []string
	// Heading gives the lines above the table, each time it is drawn. May be nil.
	Heading func() []string
}

// Run shows what there is and what changes until ctx is done, which is how it is
// meant to end: that is no error.
func Run(ctx context.Context, o Options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch, err := startWatch(ctx, o.Clients)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var asking sync.WaitGroup
	told, seen := make(chan knownCases), make(chan []string)
	if o.Blind != nil {
		asking.Go(func() { followSight(ctx, o.Blind, seen) })
	}
	asking.Go(func() { followCases(ctx, listing.NewCaseReader(o.Temporal, o.Namespace, queries), told) })
	defer watch.Wait()
	defer asking.Wait()
	defer stop()
	if err := o.Screen.Enter(); err != nil {
		return fmt.Errorf("clear the terminal: %w", err)
	}
	return errors.Join(draw(ctx, o, watch, told, seen), o.Screen.Leave())
}

// startWatch gives the first reading of the cluster a limit, and the watch none.
func startWatch(ctx context.Context, clients listing.Clients) (*listing.Watch, error) {
	first, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(readLimit, func() {
		cancel(fmt.Errorf("the cluster could not be read within %s", readLimit))
	})
	watch, err := listing.NewWatch(first, clients)
	if !limit.Stop() && err == nil {
		// The limit passed in the same moment; the watch has ended by it.
		err = context.Cause(first)
	}
	return watch, err
}

// knownCases is what Temporal last told.
type knownCases struct {
	cases    []listing.Case
	problems []string
	blind    []string
}

// followCases asks Temporal for the open cases, over and over, until ctx is done.
func followCases(ctx context.Context, reader *listing.CaseReader, told chan<- knownCases) {
	pause := time.NewTicker(casesEvery)
	defer pause.Stop()
	for {
		cases, _, problems := reader.Read(ctx)
		select {
		case told <- knownCases{cases: cases, problems: problems}:
		case <-ctx.Done():
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// followSight asks what Sickbay itself can't see, over and over, until ctx is done.
func followSight(ctx context.Context, ask func(context.Context) []string, seen chan<- []string) {
	pause := time.NewTicker(sightEvery)
	defer pause.Stop()
	for {
		select {
		case seen <- ask(ctx):
		case <-ctx.Done():
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// draw draws soon after a change, and from time to time without one.
func draw(ctx context.Context, o Options, watch *listing.Watch, told <-chan knownCases, seen <-chan []string) error {
	known := knownCases{problems: []string{"Temporal has not answered yet"}}
	redraw := time.NewTimer(0)
	defer redraw.Stop()
	soon := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-told:
			now.blind = known.blind
			known = now
		case known.blind = <-seen:
		case <-watch.Changed():
		case <-redraw.C:
			soon = false
			redraw.Reset(redrawEvery)
			if err := drawOnce(o, watch.Cluster(), known); err != nil {
				return err
			}
			continue
		}
		if !soon {
			soon = true
			redraw.Reset(redrawAfter)
		}
	}
}

func drawOnce(o Options, cluster listing.Cluster, known knownCases) error {
	cluster.Problems, cluster.Blind = slices.Concat(cluster.Problems, known.problems), known.blind
	narrowed, _ := listing.Join(cluster, known.cases, time.Now().UTC()).Narrow(o.Filter)
	narrowed = narrowed.Sort(o.Order)
	var heading []string
	if o.Heading != nil {
		heading = o.Heading()
	}
	if err := o.Screen.Show(narrowed, heading...); err != nil {
		return fmt.Errorf("draw the listing: %w", err)
	}
	return nil
}

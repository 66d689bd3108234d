package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/live"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/tests/product"
)

const (
	// pause is how long each outcome is left to be looked at.
	pause = 3 * time.Second
	// askEvery is the pause between two questions whether an outcome is there.
	askEvery = 500 * time.Millisecond
)

// finished is said when all scenes were played; a test waits for it.
const finished = "all faults were handled as they should be"

// play shows the table until ctx is done or a scene fails that was expected not
// to. The plot runs beside it.
func (d *demo) play(ctx context.Context, f flags) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var plot sync.WaitGroup
	var failed error
	if d.nodes != nil {
		plot.Go(func() {
			done, err := d.perform(ctx)
			switch {
			case err != nil && ctx.Err() == nil:
				d.story.tell("not as expected: %v", err)
				say("demo: not as expected: %v", err)
				if f.expect {
					failed = err
					stop(err)
				}
			case !done && f.expect:
				failed = fmt.Errorf("ended before all faults were handled: %w", context.Cause(ctx))
			}
		})
	}
	size, colour := terminal()
	err := live.Run(ctx, live.Options{
		Clients: d.clients, Temporal: d.temporal, Namespace: d.stack.TemporalNamespace(),
		Screen:  show.NewScreen(os.Stdout, show.Table, colour, size),
		Heading: d.heading,
	})
	if err != nil {
		stop(err)
	}
	plot.Wait()
	select {
	case crash := <-d.stack.Crashed():
		err = errors.Join(err, crash)
	default:
	}
	return errors.Join(err, failed)
}

// heading stands above the table.
func (d *demo) heading() []string {
	what := "watching your cluster"
	if d.nodes != nil {
		what = fmt.Sprintf("Kubernetes %s with simulated nodes, KUBECONFIG=%s", d.stack.KubernetesVersion(), d.stack.Kubeconfig())
	}
	lines := []string{
		"Sickbay, mode " + d.mode + ": " + what,
		"Temporal UI: " + d.stack.TemporalUI() + "/namespaces/" + d.stack.TemporalNamespace() + "/workflows    Ctrl-C ends it all",
		"Ask it yourself, in another terminal: source " + d.environmentFile() + "; sickbay devices --faulty",
		"",
	}
	if story := d.story.latest(); len(story) > 0 {
		lines = append(append(lines, story...), "")
	}
	return lines
}

// perform plays the scenes one after the other, and tells whether it came to
// their end.
func (d *demo) perform(ctx context.Context) (done bool, err error) {
	scenes, err := d.scenes(ctx)
	if err != nil {
		return false, err
	}
	for _, s := range scenes {
		if !linger(ctx, pause) {
			return false, nil
		}
		d.tell(s.happens)
		if s.do != nil {
			if err := s.do(ctx); err != nil {
				return false, fmt.Errorf("%s: %w", s.happens, err)
			}
		}
		since := time.Now()
		if err := d.await(ctx, s); err != nil {
			return false, err
		}
		d.tell(fmt.Sprintf("  → %s (seen after %.1f s)", s.outcome, time.Since(since).Seconds()))
	}
	d.tell(finished)
	return true, nil
}

func (d *demo) tell(text string) {
	d.story.tell("%s", text)
	if size, _ := terminal(); size == nil {
		say("demo: %s", text)
	}
}

// await asks `sickbay devices`, as a user would, until the outcome is there.
func (d *demo) await(ctx context.Context, s scene) error {
	limit, cancel := context.WithTimeoutCause(ctx, s.within, fmt.Errorf("not within %s", s.within))
	defer cancel()
	for {
		l, err := d.listDevices(limit)
		if err == nil {
			err = s.seen(l)
		}
		if err == nil {
			return nil
		}
		if !linger(limit, askEvery) {
			return fmt.Errorf("%s: want: %s: %w: %w", s.happens, s.outcome, context.Cause(limit), err)
		}
	}
}

// listDevices runs the real command.
func (d *demo) listDevices(ctx context.Context) (listing.Listing, error) {
	command := exec.CommandContext(ctx, d.binary, "devices", "-o", "json")
	command.Env = append(os.Environ(), product.Environment(d.stack)...)
	var out, failed bytes.Buffer
	command.Stdout, command.Stderr = &out, &failed
	if err := command.Run(); err != nil {
		return listing.Listing{}, fmt.Errorf("sickbay devices: %w: %s", err, failed.String())
	}
	var l listing.Listing
	if err := json.Unmarshal(out.Bytes(), &l); err != nil {
		return listing.Listing{}, fmt.Errorf("read what sickbay devices says: %w", err)
	}
	return l, nil
}

// linger waits, and tells whether ctx let it.
func linger(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// terminal tells how large standard output is, if it is a terminal, and whether
// it wants colour.
func terminal() (size func() (columns, lines int, err error), colour bool) {
	descriptor := int(os.Stdout.Fd())
	if !term.IsTerminal(descriptor) {
		return nil, false
	}
	return func() (int, int, error) { return term.GetSize(descriptor) }, os.Getenv("NO_COLOR") == ""
}

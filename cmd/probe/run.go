package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// errTold is why checks end that were asked to.
var errTold = errors.New("told to end")

// Schedule says how often the checks are made.
type Schedule struct {
	// For is for how long; zero is once. Every is how far apart rounds begin.
	For, Every time.Duration
	// Timeout bounds one round.
	Timeout time.Duration
}

// Run makes the checks as often as the schedule says, tells each round of which something
// is news, and leaves the report at a path. It stops at the first failure, and when ctx
// is done.
func Run(ctx context.Context, out io.Writer, place Place, options Options, schedule Schedule, path string) (Report, error) {
	report := Report{Format: Format, Began: time.Now().UTC()}
	end := report.Began.Add(schedule.For)
	var told []Check
	for {
		began := time.Now()
		checks := round(ctx, place, options, schedule.Timeout, report.Checks)
		report.Rounds++
		report.Checks, report.Ended = checks, time.Now().UTC()
		if !slices.Equal(checks, told) {
			if told != nil {
				fmt.Fprintf(out, "\nround %d, after %s:\n", report.Rounds, report.Ended.Sub(report.Began).Round(time.Second))
			}
			print(out, checks)
			told = checks
		}
		report.judge(schedule, end, ctx.Err() != nil)
		left := report
		if left.Verdict == "" {
			left.Verdict = Unchecked // what is killed from here on was not done
		}
		if err := left.save(path); report.Verdict != "" || err != nil {
			report = left
			fmt.Fprintln(out, "\n"+report.Summary)
			return report, err
		}
		if !wait(ctx, min(schedule.Every-time.Since(began), time.Until(end))) {
			report.Ended = time.Now().UTC()
			report.judge(schedule, end, true)
			err := report.save(path)
			fmt.Fprintln(out, "\n"+report.Summary)
			return report, err
		}
	}
}

// round makes all checks once, within a time.
func round(ctx context.Context, place Place, options Options, limit time.Duration, before []Check) []Check {
	within, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(errTold) })()
	timed, stop := context.WithTimeout(within, limit)
	defer stop()
	return options.round(timed, place, before)
}

// judge puts verdict and summary in. While neither a failure nor the end is there, the
// verdict stays open in what is returned, and is unchecked in what is left behind.
func (r *Report) judge(schedule Schedule, end time.Time, told bool) {
	took := r.Ended.Sub(r.Began).Round(time.Second)
	rounds := "once"
	if schedule.For > 0 {
		rounds = fmt.Sprintf("%d times in %s", r.Rounds, took)
	}
	of := func(state State) (bad []Check) {
		for _, c := range r.Checks {
			if c.State == state {
				bad = append(bad, c)
			}
		}
		return bad
	}
	failed, unchecked := of(StateFailed), of(StateUnchecked)
	switch {
	case len(failed) > 0:
		r.Verdict, r.Summary = Failed, fmt.Sprintf("failed: %d of %d checks, checked %s; %s", len(failed), len(r.Checks), rounds, failed[0].text())
	case len(unchecked) > 0:
		r.Verdict, r.Summary = Unchecked, fmt.Sprintf("not checked: %d of %d checks couldn't be made; %s", len(unchecked), len(r.Checks), unchecked[0].text())
	case r.Ended.Before(end) && told:
		r.Verdict, r.Summary = Unchecked, fmt.Sprintf("not checked: told to end after %s of %s", took, schedule.For)
	case r.Ended.Before(end):
		r.Verdict, r.Summary = "", fmt.Sprintf("under way: all checks were ok %s, of %s", rounds, schedule.For)
	default:
		r.Verdict, r.Summary = Passed, fmt.Sprintf("passed: %d checks, checked %s", len(r.Checks), rounds)
	}
}

// text is the check in a few words.
func (c Check) text() string {
	if c.About == "" {
		return c.Detail
	}
	return c.Name + " " + c.About + ": " + c.Detail
}

// wait returns after a time; false if it is told to end before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func print(out io.Writer, checks []Check) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHECK\tABOUT\tSTATE\tFOUND")
	for _, c := range checks {
		about := c.About
		if about == "" {
			about = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.Name, about, c.State, c.Detail)
	}
	table.Flush() // what can't be written is missing where it would be read
}

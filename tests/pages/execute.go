package pages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sickbay-dev/sickbay/tests/checks"
)

const (
	// commandLimit is how long a command may take, and followLimit how long one that
	// goes on, until it has said what the page shows.
	commandLimit = time.Minute
	followLimit  = 30 * time.Second
	// quietFor is how long one that follows says nothing until an update takes what
	// it said for all.
	quietFor = 3 * time.Second
	// interrupted ends what the page shows of a command that is ended by Ctrl-C, as
	// a terminal shows it.
	interrupted = "^C"
)

// execute runs a command, and returns what stands below it at a terminal: what it
// says, and as its last line the exit code if that isn't 0.
func (p Page) execute(ctx context.Context, part checks.PagePart) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandLimit, fmt.Errorf("not within %s", commandLimit))
	defer cancel()
	run := exec.CommandContext(ctx, "bash", "-c", part.Command)
	run.Dir = p.Dir
	run.Env = slices.Concat(os.Environ(), p.Env)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A child that it leaves behind may hold its output open.
	run.WaitDelay = 5 * time.Second
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	said := &output{grew: make(chan struct{}, 1)}
	run.Stdout, run.Stderr = said, said
	if err := run.Start(); err != nil {
		return nil, err
	}
	var lines []string
	goesOn := slices.Contains(part.Shown, interrupted)
	if goesOn {
		lines = append(p.follow(ctx, part, said), interrupted)
		// One that ended by itself is told by its exit code.
		_ = syscall.Kill(-run.Process.Pid, syscall.SIGINT)
	}
	err := run.Wait()
	if !goesOn {
		lines = said.lines()
	}
	if ctx.Err() != nil {
		return lines, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return lines, err
	}
	if code := exitCode(run.ProcessState); code != 0 {
		lines = append(lines, fmt.Sprintf("[exit code %d]", code))
	}
	return lines, nil
}

// exitCode is what a shell calls the end of a process.
func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// follow waits until a command that goes on has said what the page shows, or, where
// the page is written anew, until it says no more. It returns what was said by then.
func (p Page) follow(ctx context.Context, part checks.PagePart, said *output) []string {
	ctx, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	want := part.Shown[:slices.Index(part.Shown, interrupted)]
	quiet := time.NewTimer(quietFor)
	defer quiet.Stop()
	for {
		lines := said.lines()
		if _, same := compare(p.Mask, want, lines); same && len(lines) > 0 {
			return lines
		}
		select {
		case <-said.grew:
			quiet.Reset(quietFor)
		case <-quiet.C:
			if p.Update && len(lines) > 0 {
				return lines
			}
			quiet.Reset(quietFor)
		case <-ctx.Done():
			return lines
		}
	}
}

// output gathers what a command says, and tells that there is more.
type output struct {
	mu   sync.Mutex
	text strings.Builder
	grew chan struct{}
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(data)
	select {
	case o.grew <- struct{}{}:
	default:
	}
	return len(data), nil
}

// lines are what was said, without the blank end.
func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimRight(o.text.String(), " \n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process has between SIGTERM and SIGKILL.
const stopGrace = 15 * time.Second

// errPortTaken is returned when a part found its port in use although it was
// free a moment before; the stack then starts over on other ports.
var errPortTaken = errors.New("port already in use")

// Process says how to run one process under a stack.
type Process struct {
	// Name names it for StopPart, KillPart, Log and the rest.
	Name string
	// Path and Args are the program and its arguments, without argv[0].
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Dir is the working directory. Default: the stack's directory.
	Dir string
	// User is whom it runs as. Nil: as whom the test runs.
	User *syscall.Credential
	// Ready returns nil once the process serves. It is asked every 25 ms until
	// then; its last error is reported if the start times out. Nil: ready as
	// soon as it runs.
	Ready func(ctx context.Context) error
	// Grace bounds the time between SIGTERM and SIGKILL. Default 15 s.
	Grace time.Duration
	// LeaveGroup leaves processes that this one started alone when it is
	// killed, for a program whose children are meant to outlive it, as
	// containerd's shims are.
	LeaveGroup bool
}

// part is a process that can be stopped, killed and started again on the same
// command line, which means on the same ports and data.
type part struct {
	spec    Process
	logPath string
	spawner *spawner
	crashed chan<- error // told of an end that nobody asked for

	mu       sync.Mutex // guards the fields below
	cmd      *exec.Cmd
	done     chan struct{} // closed when cmd has been waited for
	waitErr  error         // valid once done is closed
	expected bool          // somebody asked for the end of cmd
	starts   []span        // from each start until it was ready
}

// span is a stretch of time.
type span struct{ from, to time.Time }

// start runs the process and waits until it is ready.
func (p *part) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runningLocked() {
		return fmt.Errorf("start %s: it already runs, pid %d", p.spec.Name, p.cmd.Process.Pid)
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.spec.Name, err)
	}
	defer log.Close() // the child has its own copy
	logStart, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.spec.Name, err)
	}
	fmt.Fprintf(log, "--- %s %s\n", p.spec.Path, strings.Join(p.spec.Args, " "))

	cmd := exec.Command(p.spec.Path, p.spec.Args...)
	cmd.Env = append(os.Environ(), p.spec.Env...)
	cmd.Dir = p.spec.Dir
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own, so that Ctrl-C in a terminal reaches only the stack,
	// which then stops its parts in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: p.spec.User}
	began := time.Now()
	if err := p.spawner.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.spec.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.expected, p.waitErr = cmd, done, false, nil
	go func() {
		err := cmd.Wait()
		p.waitErr = err // before done is closed, which publishes it
		close(done)
		if crash := p.crash(); crash != nil {
			select {
			case p.crashed <- crash:
			default: // one is enough
			}
		}
	}()
	if err := p.awaitReady(ctx, done, logStart); err != nil {
		p.expected = true // the caller hears of it here
		return err
	}
	p.starts = append(p.starts, span{began, time.Now()})
	return nil
}

// readyLimit is how long a process may take until it serves. It is far more than any
// takes: what never becomes ready is to be said with its reason, not by a suite's end.
const readyLimit = 3 * time.Minute

// awaitReady asks the process until it serves, it ends, its time is over, or ctx ends.
func (p *part) awaitReady(ctx context.Context, done <-chan struct{}, logStart int64) error {
	if p.spec.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("it had %s", readyLimit))
	defer cancel()
	ticker := time.NewTicker(25 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := p.spec.Ready(ctx)
		select {
		case <-done:
			// Whoever answered, it was not the process that just ended.
			tail := p.tail(logStart)
			if strings.Contains(tail, "address already in use") {
				return fmt.Errorf("start %s: %w\n%s", p.spec.Name, errPortTaken, tail)
			}
			return fmt.Errorf("start %s: it ended at once: %v\n%s", p.spec.Name, exitText(p.waitErr), tail)
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-done: // reported above, in the next round
		case <-ctx.Done():
			return fmt.Errorf("start %s: not ready: %v: %w\n%s", p.spec.Name, err, context.Cause(ctx), p.tail(logStart))
		case <-ticker.C:
		}
	}
}

// signal sends a signal to the process, and to its group unless that is to be
// left alone. A process that has ended is no error.
func (p *part) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signalLocked(sig)
}

func (p *part) signalLocked(sig syscall.Signal) error {
	if !p.runningLocked() {
		return nil
	}
	target := -p.cmd.Process.Pid
	if p.spec.LeaveGroup {
		target = p.cmd.Process.Pid
	}
	if err := syscall.Kill(target, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", sig, p.spec.Name, err)
	}
	return nil
}

// stop ends the process with SIGTERM, and with SIGKILL once its grace or ctx is
// over. It returns when the process is gone and reaped.
func (p *part) stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runningLocked() {
		return nil
	}
	p.expected = true
	grace := p.spec.Grace
	if grace == 0 {
		grace = stopGrace
	}
	// A process that a test had stopped (SIGSTOP) can't hear SIGTERM.
	if err := errors.Join(p.signalLocked(syscall.SIGTERM), p.signalLocked(syscall.SIGCONT)); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := p.signalLocked(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return fmt.Errorf("stop %s: it did not end within %s of SIGTERM and was killed", p.spec.Name, grace)
}

// kill ends the process with SIGKILL and returns when it is gone and reaped.
func (p *part) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runningLocked() {
		return fmt.Errorf("kill %s: it does not run", p.spec.Name)
	}
	p.expected = true
	if err := p.signalLocked(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// runningLocked says whether the process is there. The caller holds mu.
func (p *part) runningLocked() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// pid is the process's ID, 0 if it does not run.
func (p *part) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runningLocked() {
		return 0
	}
	return p.cmd.Process.Pid
}

// crash describes an end that nobody asked for; nil if there was none.
func (p *part) crash() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.expected || p.runningLocked() {
		return nil
	}
	return fmt.Errorf("%s ended on its own: %s\n%s", p.spec.Name, exitText(p.waitErr), p.tail(0))
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// tail is the end of the log from an offset on, for error messages.
func (p *part) tail(from int64) string {
	const most = 4000
	content, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	if int64(len(content)) > from {
		content = content[from:]
	}
	if len(content) > most {
		content = content[len(content)-most:]
		if _, rest, found := bytes.Cut(content, []byte("\n")); found {
			content = rest
		}
	}
	return fmt.Sprintf("%s:\n%s", filepath.Base(p.logPath), bytes.TrimSpace(content))
}

// spawner starts processes from one OS thread that lives as long as it does.
//
// PR_SET_PDEATHSIG, which kills the children of a test that was itself killed,
// watches the *thread* that forked, not the process. Started from an ordinary
// goroutine, a child could die whenever the runtime retires a thread.
type spawner struct {
	requests chan spawnRequest
	ended    chan struct{}
}

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		// Never unlocked: the thread ends with the goroutine, and with it
		// whatever child should still be there.
		runtime.LockOSThread()
		for request := range s.requests {
			request.result <- request.cmd.Start()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	request := spawnRequest{cmd: cmd, result: make(chan error, 1)}
	s.requests <- request
	return <-request.result
}

func (s *spawner) close() {
	close(s.requests)
	<-s.ended
}

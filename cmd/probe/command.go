package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// killed is how long a command that was told to end has until it is killed.
const killed = 3 * time.Second

// run has a vendor's own check made. It ends with what it started: all of it is one
// process group.
func run(ctx context.Context, words []string) Check {
	check := Check{Name: "run", About: short(strings.Join(words, " "))}
	var said tail
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Stdout, command.Stderr = &said, &said
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = killed
	err := command.Run()
	if command.Process != nil {
		// What is left of the group outlived the command, or didn't mind being told.
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	}
	var ended *exec.ExitError
	switch {
	case errors.Is(context.Cause(ctx), errTold):
		check.State, check.Detail = StateUnchecked, "told to end while it ran"
	case ctx.Err() != nil:
		check.State, check.Detail = StateFailed, "not done in time: "+said.text()
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // the latter leaves somebody behind who goes on writing
		check.State, check.Detail = StateOK, "exit code 0: "+said.text()
	case errors.As(err, &ended):
		check.State, check.Detail = StateFailed, fmt.Sprintf("%s: %s", ended.ProcessState, said.text())
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		check.State, check.Detail = StateUnchecked, "there is no such program in this image"
	default:
		check.State, check.Detail = StateUnchecked, short(err.Error())
	}
	return check
}

// tail keeps the end of what a command writes.
type tail struct{ kept []byte }

const maxTail = 4 * maxDetail

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > maxTail {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-maxTail:]...)
	}
	return len(p), nil
}

func (t *tail) text() string {
	if text := short(string(t.kept)); text != "" {
		return text
	}
	return "it said nothing"
}

package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// first is set for the process that is the first of a process namespace.
const first = "PROBE_TEST_FIRST"

func TestMain(m *testing.M) {
	if os.Getenv(first) != "" {
		os.Exit(holdFirst())
	}
	os.Exit(m.Run())
}

// holdFirst holds as the first process of a container does, with a child that ends and
// that nobody waits for, and tells itself to end once that is gone.
func holdFirst() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	held := make(chan struct{})
	go func() {
		defer close(held)
		Hold(ctx)
	}()
	orphan := exec.Command("sh", "-c", "sleep 0.1")
	if err := orphan.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	tick, late := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	for !errors.Is(syscall.Kill(orphan.Process.Pid, 0), syscall.ESRCH) {
		select {
		case <-tick.C:
		case <-late:
			fmt.Println("a child that ended is there still")
			return 1
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		fmt.Println(err)
		return 1
	}
	select {
	case <-held:
		return 0
	case <-late:
		fmt.Println("it holds on although it was told to end")
		return 1
	}
}

// The kernel gives the first process of a container no signal that it has no handler for,
// and leaves the container's orphans to it.
func TestHoldingAsTheFirstProcessEndsWhenToldToAndLeavesNothingBehind(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a process namespace")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), first+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if said, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// Command leftovers fails if a process is still running whose environment holds
// the given entry NAME=value. It waits a little first: what was told to end may
// need a moment.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/sickbay-dev/sickbay/tests/checks"
)

const (
	patience = 20 * time.Second
	every    = 250 * time.Millisecond
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "leftovers: want one argument, NAME=value")
		os.Exit(2)
	}
	left, err := wait(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "leftovers:", err)
		os.Exit(1)
	}
	for _, process := range left {
		fmt.Printf("still running: %d %s\n", process.PID, process.Command)
	}
	if len(left) > 0 {
		os.Exit(1)
	}
}

func wait(entry string) ([]checks.Process, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		left, err := checks.Marked(entry)
		if err != nil || len(left) == 0 {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return left, nil
		}
	}
}

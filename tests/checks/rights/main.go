// Command rights compares the calls that Sickbay's processes made over whole suites
// with the rights that are shipped.
//
//	go run ./checks/rights FOLDER…            after whole suites
//	go run ./checks/rights --partial FOLDER…  after a part: rights may be unused
//
// The folders are what the stacks wrote their calls into (SICKBAY_STACK_CALLS). It
// fails if a call was refused, wrote a subresource, or was made by another account
// than that of its process, if a right is used that isn't shipped, and if one is
// shipped that is never used.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

func main() {
	partial := flag.Bool("partial", false, "let rights be unused: only a part of the tests ran")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	complaints, err := run(ctx, *partial, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "rights:", err)
		os.Exit(1)
	}
	for _, complaint := range complaints {
		fmt.Println(complaint)
	}
	if len(complaints) > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, partial bool, folders []string) ([]string, error) {
	calls, err := stack.ReadCalls(folders...)
	if err != nil {
		return nil, err
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("no calls in %q: run the tests with %s set to such a folder", folders, stack.CallsVariable)
	}
	objects, err := deploy.Rights(ctx, deploy.Overlay{Components: []string{deploy.Enforce, deploy.Watch, deploy.NodeIsolation}})
	if err != nil {
		return nil, err
	}
	granted, err := deploy.GrantsOf(objects)
	if err != nil {
		return nil, err
	}
	complaints := compare(granted, calls, partial)
	if len(complaints) == 0 {
		rights := 0
		for _, set := range granted {
			rights += len(set)
		}
		fmt.Printf("rights: %d kinds of calls, %d rights, nothing refused, nothing unused\n", len(calls), rights)
	}
	return complaints, nil
}

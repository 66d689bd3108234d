// Sickbay governs the health of accelerators in a Kubernetes cluster. This
// binary holds all of its processes and commands; package cmd has them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/sickbay-dev/sickbay/cmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a clean end; from then on a second one ends the
	// process at once.
	context.AfterFunc(ctx, stop)
	code := cmd.RunAs(ctx, os.Args[0], os.Args[1:], cmd.Streams{Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

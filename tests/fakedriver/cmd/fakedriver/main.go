// Command fakedriver runs the fake DRA driver against a kubelet. It ends on
// SIGTERM and SIGINT, and removes its sockets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/sickbay-dev/sickbay/tests/fakedriver"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := fakedriver.ParseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := fakedriver.Run(ctx, cfg, log); err != nil {
		log.Error("driver ended", "error", err)
		os.Exit(1)
	}
}

// Command fakeplugin runs the fake device plugin against a kubelet. It ends on
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

	"github.com/sickbay-dev/sickbay/tests/fakeplugin"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := fakeplugin.ParseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := fakeplugin.Run(ctx, cfg, log); err != nil {
		log.Error("plugin ended", "error", err)
		os.Exit(1)
	}
}

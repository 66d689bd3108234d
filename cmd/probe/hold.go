package probe

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// Hold does nothing until ctx is done. As the first process of a container it is the
// parent of what loses its own, and lets it go.
func Hold(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	if os.Getpid() == 1 {
		signal.Notify(ended, syscall.SIGCHLD)
		defer signal.Stop(ended)
	}
	// What starting took is given back.
	debug.FreeOSMemory()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

// Command pause is all that containers on a test node run: it waits for SIGTERM,
// or ends by itself when told to. It prints its environment first, so that a
// container's log shows what it was given.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	code := flag.Int("exit", -1, "end with this exit code; less than 0 waits for SIGTERM")
	after := flag.Duration("after", 0, "end after this time")
	flag.Parse()
	for _, e := range os.Environ() {
		fmt.Println(e)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if *code < 0 {
		<-stop
		return
	}
	select {
	case <-time.After(*after):
		os.Exit(*code)
	case <-stop:
	}
}

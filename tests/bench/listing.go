package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/sickbay-dev/sickbay/tests/bench/apiserver"
	"github.com/sickbay-dev/sickbay/tests/product"
)

// listed is what one `sickbay devices` took.
type listed struct {
	// read is when the API server had answered its last request, first when the first
	// row came, whole when the process had ended.
	read, first, whole time.Duration
	cpu                time.Duration
	peak               int64
	lines              int
}

// measureListings lists the whole fleet in each form.
func measureListings(ctx context.Context, r *report, fleet *site, server *apiserver.Server) error {
	r.table("command", "last answer of the API server", "first row", "done", "CPU", "peak memory", "lines")
	for _, form := range []struct {
		arguments []string
		// row begins the line that is the first row.
		row string
		// least is how many lines there have to be.
		least int
	}{
		{[]string{"devices"}, "gpu.", fleet.devices},
		{[]string{"devices", "-o", "json"}, `"name":`, fleet.devices},
		{[]string{"devices", "--counts"}, "None", 2},
	} {
		took, err := list(ctx, fleet, server, form.row, form.arguments...)
		if err != nil {
			return err
		}
		if took.lines < form.least {
			return fmt.Errorf("sickbay %v printed %d lines, want %d at least", form.arguments, took.lines, form.least)
		}
		command := "`sickbay"
		for _, a := range form.arguments {
			command += " " + a
		}
		r.row(command+"`", took.read.Round(10*time.Millisecond).String(), took.first.Round(10*time.Millisecond).String(),
			took.whole.Round(10*time.Millisecond).String(), took.cpu.Round(10*time.Millisecond).String(), size(took.peak), fmt.Sprint(took.lines))
	}
	return nil
}

// list runs a command for people against the generated API server.
func list(ctx context.Context, fleet *site, server *apiserver.Server, row string, arguments ...string) (listed, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	command := exec.CommandContext(ctx, fleet.binary, arguments...)
	command.Env = append(append(os.Environ(), product.Environment(fleet.stack)...), fleet.kubernetes...)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.StdoutPipe()
	if err != nil {
		return listed{}, err
	}
	began := time.Now()
	if err := command.Start(); err != nil {
		return listed{}, err
	}
	peak := make(chan int64)
	ended := make(chan struct{})
	go func() { peak <- peakOf(command.Process.Pid, ended) }()
	var took listed
	lines := bufio.NewReaderSize(out, 1<<20)
	var failed error
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			took.lines++
		}
		if took.first == 0 && bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte(row)) {
			took.first = time.Since(began)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				failed = err
			}
			break
		}
	}
	err = errors.Join(failed, command.Wait())
	took.whole = time.Since(began)
	took.cpu = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	close(ended)
	took.peak = <-peak
	if err != nil {
		return took, fmt.Errorf("sickbay %v: %w: %s", arguments, err, said.Bytes())
	}
	if took.first == 0 {
		return took, fmt.Errorf("sickbay %v printed no line that begins with %q", arguments, row)
	}
	for _, call := range server.Calls(began) {
		if call.Verb == "list" && call.Resource != "leases" {
			took.read = max(took.read, call.Ended.Sub(began))
		}
	}
	return took, nil
}

// peakOf reads the most memory that a process has ever had until it ends. getrusage
// would tell it afterwards, but counts what this process had when it forked.
func peakOf(pid int, ended <-chan struct{}) int64 {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	var peak int64
	for {
		if used, err := usageOf(pid); err == nil {
			peak = max(peak, used.peak)
		}
		select {
		case <-ended:
			return peak
		case <-ticker.C:
		}
	}
}

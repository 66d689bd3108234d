package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	uuidA = "GPU-0a671a0b-deed-4727-8000-1a0bdeedb727"
	uuidB = "GPU-0a671a0b-deed-4727-8000-1a0bdeedb728"
)

// container is a place with what every container has, and what a driver gave it.
type container struct {
	t *testing.T
	Place
	dir string
}

func newContainer(t *testing.T) *container {
	t.Helper()
	dir := t.TempDir()
	c := &container{t: t, dir: dir, Place: Place{Dev: filepath.Join(dir, "dev"), MountInfo: filepath.Join(dir, "mountinfo")}}
	c.Environ = []string{"PATH=/usr/bin", "HOSTNAME=probe", "KUBERNETES_PORT=tcp://10.0.0.1:443", "DEVICE=gpu.example.com/node-0/gpu-0", "DEVICE_UUID=" + uuidA, "NVIDIA_VISIBLE_DEVICES=void", "APP_TOKEN=hunter2"}
	c.must(os.MkdirAll(filepath.Join(c.Dev, "pts"), 0o755))
	c.must(os.Symlink("/dev/null", filepath.Join(c.Dev, "stdin"))) // a link is no node
	c.mounted("/", "/proc", "/proc/kcore", "/sys/fs/cgroup", "/dev", "/dev/pts", "/dev/termination-log", "/etc/hosts", "/tmp", "/run/secrets/kubernetes.io/serviceaccount")
	return c
}

func (c *container) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// node gives it a device node of this major and minor number.
func (c *container) node(name string, major, minor uint32) string {
	c.t.Helper()
	path := filepath.Join(c.Dev, name)
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, int(major<<8|minor)); err != nil {
		if errors.Is(err, syscall.EPERM) {
			c.t.Skip("needs root: it makes device nodes")
		}
		c.t.Fatal(err)
	}
	return path
}

// null is the node of a driver that answers, unanswered that of none: major numbers 240
// to 254 are for local use.
func (c *container) null(name string) string       { return c.node(name, 1, 3) }
func (c *container) unanswered(name string) string { return c.node(name, 250, 7) }

// mounted gives it mounts, as the kernel tells of them.
func (c *container) mounted(paths ...string) {
	c.t.Helper()
	file, err := os.OpenFile(c.MountInfo, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	c.must(err)
	for i, path := range paths {
		fmt.Fprintf(file, "%d 1 0:%d / %s rw,nosuid - tmpfs tmpfs rw\n", i+20, i+20, strings.ReplaceAll(path, " ", `\040`))
	}
	c.must(file.Close())
}

// file makes a file that is then mounted.
func (c *container) file(name, content string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	c.must(os.WriteFile(path, []byte(content), 0o644))
	c.mounted(path)
	return path
}

// found are the checks, one text each, without where the test keeps its files.
func (c *container) found(options Options) []string {
	var all []string
	for _, check := range options.round(c.t.Context(), c.Place, nil) {
		text := strings.TrimSpace(strings.Join([]string{string(check.State), check.Name, check.About}, " ")) + ": " + check.Detail
		all = append(all, strings.ReplaceAll(text, c.dir, ""))
	}
	return all
}

// Proves a part of R1: a container to which its driver gave nothing proves nothing.
func TestWhereNothingOfADeviceIsSeenTheProbeFails(t *testing.T) {
	c := newContainer(t)
	got := c.found(Options{})
	if len(got) != 1 || !strings.HasPrefix(got[0], "failed device: nothing of a device can be seen: ") {
		t.Errorf("found %q", got)
	}
}

// Proves a part of R1.
func TestWhatADriverGaveIsFoundAndTried(t *testing.T) {
	for name, row := range map[string]struct {
		give func(*container)
		Options
		want []string
	}{
		"a variable that names it": {
			give: func(c *container) { c.Environ = append(c.Environ, "FAKE_DEVICE_GPU_0="+uuidA) },
			want: []string{"ok env FAKE_DEVICE_GPU_0: " + uuidA, "ok identity " + uuidA + ": as FAKE_DEVICE_GPU_0 says"},
		},
		"a variable that is called so, which may hold anything": {
			give: func(c *container) { c.Environ = append(c.Environ, "ACCEL_HANDLE=s3cret") },
			want: []string{"ok env ACCEL_HANDLE: it is set"},
		},
		"a variable that names another device": {
			give: func(c *container) { c.Environ = append(c.Environ, "FAKE_DEVICE_GPU_1="+uuidB) },
			want: []string{"ok env FAKE_DEVICE_GPU_1: " + uuidB, "failed identity " + uuidA + ": another device: the container was given FAKE_DEVICE_GPU_1=" + uuidB},
		},
		"several, this one among them": {
			give: func(c *container) { c.Environ = append(c.Environ, "UUIDS="+uuidB+","+uuidA) },
			want: []string{"ok env UUIDS: " + uuidB + "," + uuidA, "ok identity " + uuidA + ": as UUIDS says"},
		},
		"a UUID of another kind, which says nothing": {
			give: func(c *container) { c.Environ = append(c.Environ, "SLICE=MIG"+uuidB[3:]) },
			want: []string{"ok env SLICE: MIG" + uuidB[3:]},
		},
		"a node": {
			give: func(c *container) { c.null("fake0") },
			want: []string{"ok node /dev/fake0: opened"},
		},
		"a node below a directory, beside one that every container has": {
			give: func(c *container) {
				c.must(os.Mkdir(filepath.Join(c.Dev, "dri"), 0o755))
				c.null("dri/card0")
				c.null("null")
				c.null("pts/0")
			},
			want: []string{"ok node /dev/dri/card0: opened"},
		},
		"a node that no driver answers for": {
			give: func(c *container) { c.unanswered("fake0") },
			want: []string{"failed node /dev/fake0: no such device or address: no driver answers for it"},
		},
		"a mount": {
			give: func(c *container) { c.file("lib vendor.so", "x") },
			want: []string{"ok mount /lib vendor.so: can be read"},
		},
		"an empty file, and a directory": {
			give: func(c *container) { c.file("empty", ""); c.mounted(c.Dev) },
			want: []string{"ok mount /dev: can be read", "ok mount /empty: can be read"},
		},
		"a mount that is gone": {
			give: func(c *container) { c.must(os.Remove(c.file("gone", "x"))) },
			want: []string{"failed mount /gone: it isn't there"},
		},
		"only what is named counts": {
			give:    func(c *container) { c.unanswered("other"); c.file("lib", "x") },
			Options: Options{Nodes: []string{"/dev/null", "/etc/passwd", "/nowhere"}, Env: []string{"HOSTNAME", "NOWHERE"}, Mounts: []string{"/etc/passwd"}},
			want: []string{"ok node /dev/null: opened", "failed node /etc/passwd: no device node: it is a file", "failed node /nowhere: it isn't there",
				"ok env HOSTNAME: it is set", "failed env NOWHERE: it isn't set, or it is empty", "ok mount /etc/passwd: can be read"},
		},
		"what has to be seen, and is": {
			give: func(c *container) {
				c.Environ = append(c.Environ, "VENDOR_ID=x-4711-y")
				c.file("uuid", "serial 0815\n")
			},
			Options: Options{Expect: []Expectation{{"id", "4711"}, {"serial", "0815"}}},
			want:    []string{"ok mount /uuid: can be read", "ok expect id=4711: in variable VENDOR_ID", "ok expect serial=0815: in /uuid"},
		},
		"what has to be seen, and was only said": {
			give:    func(c *container) { c.file("lib", "x") },
			Options: Options{Expect: []Expectation{{"uuid", uuidA}}},
			want: []string{"ok mount /lib: can be read",
				"failed expect uuid=" + uuidA + ": not to be found in any variable, name of a node or mount, or file that the container was given: it may be another device"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			row.give(c)
			if got := c.found(row.Options); !slices.Equal(got, row.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(row.want, "\n"))
			}
		})
	}
}

func TestWhatCannotBeLookedAtIsNoPassAndNoFault(t *testing.T) {
	c := newContainer(t)
	c.MountInfo = filepath.Join(c.dir, "nowhere")
	got := c.found(Options{Nodes: []string{"/dev/null"}})
	if want := "unchecked mount: look for what is mounted: open /nowhere: no such file or directory"; len(got) != 2 || got[1] != want {
		t.Errorf("found %q, want %q", got, want)
	}
}

// script makes a program; the probe itself has no shell.
func (c *container) script(text string) []string {
	c.t.Helper()
	path := filepath.Join(c.dir, "check.sh")
	c.must(os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return []string{path}
}

func TestAVendorsCheckDecidesByHowItEnds(t *testing.T) {
	for text, want := range map[string]string{
		"echo all is well":                       "ok: exit code 0: all is well",
		"exit 0":                                 "ok: exit code 0: it said nothing",
		"echo 'ECC errors: 4' >&2; exit 3":       "failed: exit status 3: ECC errors: 4",
		"kill -9 $$":                             "failed: signal: killed: it said nothing",
		"printf '\\033[31m%s\\n\\n' red; exit 1": "failed: exit status 1: ?[31mred",
	} {
		c := newContainer(t)
		got := run(t.Context(), c.script(text))
		if said := string(got.State) + ": " + got.Detail; said != want {
			t.Errorf("%s: %q, want %q", text, said, want)
		}
	}
	if got := run(t.Context(), []string{"nvidia-smi-of-nobody", "-L"}); got.State != StateUnchecked || got.Detail != "there is no such program in this image" {
		t.Errorf("a program that isn't there: %+v", got)
	}
}

// What hangs is ended with all that it started, and has failed.
func TestAVendorsCheckThatHangsFails(t *testing.T) {
	c := newContainer(t)
	pid := filepath.Join(c.dir, "pid")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	got := run(ctx, c.script("sleep 600 & echo $! > "+pid+"; echo testing; wait"))
	if got.State != StateFailed || got.Detail != "not done in time: testing" {
		t.Errorf("%+v", got)
	}
	content, err := os.ReadFile(pid)
	c.must(err)
	var child int
	fmt.Sscan(string(content), &child)
	awaited(t, "what it started ends", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return child > 0 && (err != nil || strings.Contains(string(stat), ") Z "))
	})
}

func awaited(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick, late := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("not seen: " + what)
		}
	}
}

// left reads what was left in a termination log.
func left(t *testing.T, path string) Report {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(content, &report); err != nil {
		t.Fatalf("%v in\n%s", err, content)
	}
	return report
}

func TestOneRoundThatIsWellPasses(t *testing.T) {
	c := newContainer(t)
	c.Environ = append(c.Environ, "FAKE_DEVICE_GPU_0="+uuidA)
	path := filepath.Join(c.dir, "termination-log")
	var out bytes.Buffer
	report, err := Run(t.Context(), &out, c.Place, Options{}, Schedule{Timeout: time.Minute}, path)
	c.must(err)
	if report.Verdict != Passed || report.Summary != "passed: 2 checks, checked once" || !strings.HasSuffix(out.String(), "\n"+report.Summary+"\n") {
		t.Errorf("%+v, and said\n%s", report, out.String())
	}
	if got := left(t, path); got.Format != Format || got.Verdict != Passed || len(got.Checks) != 2 || got.Rounds != 1 || got.Ended.Before(got.Began) {
		t.Errorf("left %+v", got)
	}
}

// Proves a part of R1: a device that goes while it is watched hasn't passed, though it
// was well at first, and however little is left to look at.
func TestWhatGoesWhileItIsWatchedFails(t *testing.T) {
	c := newContainer(t)
	going, path := c.file("handle", "x"), filepath.Join(c.dir, "termination-log")
	c.file("stays", "x")
	done := make(chan Report, 1)
	var out bytes.Buffer
	go func() {
		report, _ := Run(t.Context(), &out, c.Place, Options{}, Schedule{For: time.Hour, Every: 10 * time.Millisecond, Timeout: time.Minute}, path)
		done <- report
	}()
	awaited(t, "a second round", func() bool {
		content, err := os.ReadFile(path)
		var report Report
		return err == nil && json.Unmarshal(content, &report) == nil && report.Rounds > 1 && report.Verdict == Unchecked && strings.HasPrefix(report.Summary, "under way: ")
	})
	c.must(os.WriteFile(c.MountInfo, nil, 0o644)) // unmounted: the kernel names it no more
	c.must(os.Remove(going))
	select {
	case report := <-done:
		if report.Verdict != Failed || report.Checks[0].State != StateFailed || report.Checks[0].About != going || left(t, path).Verdict != Failed {
			t.Errorf("%+v", report)
		}
		if !strings.Contains(out.String(), fmt.Sprintf("round %d, after ", report.Rounds)) {
			t.Errorf("said\n%s", out.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
}

func TestBeingToldToEndIsNoPass(t *testing.T) {
	c := newContainer(t)
	path := filepath.Join(c.dir, "termination-log")
	for name, row := range map[string]struct {
		options Options
		want    string
	}{
		"between rounds":              {Options{Nodes: []string{"/dev/null"}}, "not checked: told to end after "},
		"while a vendor's check runs": {Options{Nodes: []string{"/dev/null"}, Run: [][]string{c.script("echo $$ > " + c.dir + "/running; sleep 600")}}, "not checked: 1 of 2 checks couldn't be made; run "},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, tell := context.WithCancel(t.Context())
			defer tell()
			done := make(chan Report, 1)
			go func() {
				report, _ := Run(ctx, &bytes.Buffer{}, c.Place, row.options, Schedule{For: time.Hour, Every: time.Hour, Timeout: time.Hour}, path)
				done <- report
			}()
			awaited(t, "it runs", func() bool {
				_, report := os.Stat(path)
				_, running := os.Stat(c.dir + "/running")
				return report == nil && len(row.options.Run) == 0 || running == nil && len(row.options.Run) > 0
			})
			tell()
			select {
			case report := <-done:
				if report.Verdict != Unchecked || !strings.HasPrefix(report.Summary, row.want) || left(t, path).Verdict != Unchecked {
					t.Errorf("%+v", report)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it goes on")
			}
		})
	}
}

func TestTheReportFitsIntoATerminationLogAndLeavesOutWhatIsWell(t *testing.T) {
	report := Report{Format: Format, Verdict: Failed, Summary: "failed"}
	for i := range 100 {
		state := StateOK
		if i == 99 {
			state = StateFailed
		}
		report.Checks = append(report.Checks, Check{Name: "node", About: fmt.Sprintf("/dev/fake%d", i), State: state, Detail: strings.Repeat("x", 100)})
	}
	text := report.Text()
	var got Report
	if err := json.Unmarshal(text, &got); err != nil || len(text) > maxReport {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if got.Checks[0].About != "/dev/fake99" || got.Left == 0 || len(got.Checks)+got.Left != 100 || len(report.Checks) != 100 || report.Checks[0].About != "/dev/fake0" {
		t.Errorf("first %+v, %d shown, %d left out", got.Checks[0], len(got.Checks), got.Left)
	}
}

func TestAReportThatCannotBeLeftIsAnErrorAndOneThatNobodyReadsIsNot(t *testing.T) {
	c := newContainer(t)
	report, err := Run(t.Context(), &bytes.Buffer{}, c.Place, Options{Nodes: []string{"/dev/null"}}, Schedule{Timeout: time.Minute}, filepath.Join(c.dir, "no", "where"))
	if err == nil || report.Verdict != Passed {
		t.Errorf("%v, %+v", err, report)
	}
	if _, err := os.Stat(TerminationLog); err == nil {
		return // this runs in a container itself
	}
	if _, err := Run(t.Context(), &bytes.Buffer{}, c.Place, Options{Nodes: []string{"/dev/null"}}, Schedule{Timeout: time.Minute}, TerminationLog); err != nil {
		t.Error(err)
	}
}

// Package setup tests how Sickbay and a Temporal service come together: `sickbay
// setup temporal`, certificates, API keys, and what is said where they are wrong.
package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

func TestMain(m *testing.M) { product.Main(m) }

// site is a Temporal that knows nothing of Sickbay.
type site struct {
	t      *testing.T
	stack  *stack.Stack
	binary string
	// env are the settings that everything here has.
	env []string
	// files is a folder for certificates and keys.
	files string
}

func newSite(t *testing.T, opts stack.Options) *site {
	t.Helper()
	opts.Temporal, opts.NoTemporalNamespace = true, true
	s := &site{t: t, stack: stack.Start(t, opts), files: t.TempDir()}
	var err error
	if s.binary, err = product.Shared(); err != nil {
		t.Fatal(err)
	}
	s.env = product.Environment(s.stack)
	return s
}

// answer is what a command said.
type answer struct {
	code     int
	out, err string
}

// sickbay runs a command with further settings, which may override the site's.
func (s *site) sickbay(env []string, args ...string) answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, s.binary, args...)
	run.Env = slices.Concat(os.Environ(), s.env, env)
	var out, err bytes.Buffer
	run.Stdout, run.Stderr = &out, &err
	failed := run.Run()
	if exit := (*exec.ExitError)(nil); failed != nil && !errors.As(failed, &exit) {
		s.t.Fatalf("sickbay %v: %v", args, failed)
	}
	return answer{run.ProcessState.ExitCode(), out.String(), err.String()}
}

// wants checks an answer's exit code, and that it says all of these.
func (a answer) wants(t *testing.T, code int, said ...string) {
	t.Helper()
	if a.code != code {
		t.Errorf("exit code %d, want %d", a.code, code)
	}
	for _, want := range said {
		if !strings.Contains(a.out+a.err, want) {
			t.Errorf("doesn't say %q", want)
		}
	}
	if t.Failed() {
		t.Fatalf("said\n%s%s", a.out, a.err)
	}
}

// report is what -o json says of a run.
type report struct {
	Namespace string
	DryRun    bool
	Ready     bool
	Changes   []struct{ Change, Retention, Before, Attribute, Type, Outcome string }
	Notes     []string
	Errors    []string
}

func (a answer) report(t *testing.T) report {
	t.Helper()
	var r report
	if err := json.Unmarshal([]byte(a.out), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, a.out, a.err)
	}
	return r
}

// dial makes a client of a namespace. key is empty where none is asked for.
func (s *site) dial(namespace, key string) client.Client {
	s.t.Helper()
	secured, err := s.stack.TemporalTLS()
	if err != nil {
		s.t.Fatal(err)
	}
	options := client.Options{HostPort: s.stack.TemporalAddress(), Namespace: namespace, ConnectionOptions: client.ConnectionOptions{TLS: secured}}
	if key != "" {
		options.Credentials = client.NewAPIKeyStaticCredentials(key)
	}
	c, err := client.DialContext(s.t.Context(), options)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// file writes a file that a setting can name.
func (s *site) file(name, content string) string {
	s.t.Helper()
	path := filepath.Join(s.files, name)
	// In one step: whoever reads it finds the old or the new.
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// key makes an API key that is good for a while.
func (s *site) key(good time.Duration, permissions ...string) string {
	s.t.Helper()
	key, err := s.stack.TemporalKey("sickbay", good, permissions...)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

// eventually polls until check returns nil, and fails with its last error.
func (s *site) eventually(what string, check func(context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}

// log is what a process said.
func (s *site) log(name string) string {
	said, err := os.ReadFile(s.stack.Log(name))
	if err != nil {
		return err.Error()
	}
	return string(said)
}

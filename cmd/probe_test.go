package cmd

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/cmd/probe"
)

// How a probe ended is what decides about a device: its exit codes are the interface.
func TestAProbeEndsWithTheCodeThatItsVerdictHas(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"all is well":              {[]string{"--device-node", "/dev/null"}, ExitOK, "passed: 3 checks, checked once"},
		"a node that isn't there":  {[]string{"--device-node", "/dev/nowhere"}, ExitFailure, "failed: 1 of 3 checks, checked once; node /dev/nowhere: it isn't there"},
		"no such vendor's program": {[]string{"--device-node", "/dev/null", "--run", "/nowhere/diag -r 1"}, ExitPartial, "not checked: 1 of 4 checks couldn't be made; run /nowhere/diag -r 1: there is no such program in this image"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "report")
			// What there is on this machine is no part of it.
			got := run(t, append([]string{"probe", "--env", "PATH", "--mount", filepath.Dir(path), "--report", path}, tc.args...)...)
			if got.code != tc.code || !strings.Contains(got.out, "\n"+tc.want) || got.err != "" {
				t.Errorf("exit code %d, standard error %q, standard output\n%s\nwant %d and %q", got.code, got.err, got.out, tc.code, tc.want)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var report probe.Report
			if err := json.Unmarshal(content, &report); err != nil || !strings.HasPrefix(report.Summary, tc.want) {
				t.Errorf("%v, left %s", err, content)
			}
		})
	}
}

func TestHoldingEndsWellWhenToldTo(t *testing.T) {
	ctx, tell := context.WithCancel(t.Context())
	tell()
	var out, failed strings.Builder
	if code := Run(ctx, []string{"probe", "hold"}, Streams{Out: &out, Err: &failed}); code != ExitOK || out.String() != "" {
		t.Errorf("exit code %d, standard output %q", code, out.String())
	}
}

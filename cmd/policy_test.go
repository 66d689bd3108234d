package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestACheckOfAPolicySaysAllThatIsWrongAndWhere(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", "apiVersion: sickbay.dev/v1\nkind: Policy\nmode: enforce\nclasses:\n  a100: {budget: {max: 3}}\n")
	bad := write("bad.yaml", "apiVersion: sickbay.dev/v1\nkind: Policy\nmode: on\nquarantine:\n  grace: -5m\n")
	for name, row := range map[string]struct {
		path, out, err string
		code           int
	}{
		"a policy": {good, good + ": a policy with mode enforce; it names no drivers and 1 class\n", "", ExitOK},
		"two mistakes": {bad, "",
			"sickbay: " + bad + `: line 3: mode: "on"; want observe or enforce` + "\n" +
				"sickbay: " + bad + `: line 5: quarantine.grace: "-5m"; want a duration such as 30s, 5m or 1h30m, from 1s to 24h` + "\n", ExitUsage},
		"no such file": {filepath.Join(folder, "none"), "", "sickbay: open " + filepath.Join(folder, "none") + ": no such file or directory\n", ExitFailure},
		"a directory":  {folder, "", "sickbay: read " + folder + ": is a directory\n", ExitFailure},
	} {
		if got := run(t, "policy", "check", row.path); got.code != row.code || got.out != row.out || got.err != row.err {
			t.Errorf("%s: exit code %d, says %q and %q; want %d, %q and %q", name, got.code, got.out, got.err, row.code, row.out, row.err)
		}
	}
	if got := run(t, "policy", "check"); got.code != ExitUsage || !strings.Contains(got.err, "wants one file, or - for standard input") {
		t.Errorf("without a file: exit code %d, %q", got.code, got.err)
	}
	if got := run(t, "policy", "chekc"); got.code != ExitUsage || !strings.Contains(got.err, "did you mean check?") {
		t.Errorf("misspelt: exit code %d, %q", got.code, got.err)
	}
}

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/reason"
)

func reasonsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "reasons.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestASitesReasonsInYAMLChangeTheVerdict(t *testing.T) {
	t.Setenv("SICKBAY_REASONS_FILE", reasonsFile(t, `
version: site-1
disable:
- xids: [79]
`))
	var starter Starter
	if err := Load(&starter); err != nil {
		t.Fatal(err)
	}
	catalogue, err := starter.Reasons.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	match := catalogue.Match("gpu.nvidia.com", "Xid 79")
	if match.Action != reason.ActionIgnore || match.Catalogue != reason.Version+"+site-1" {
		t.Errorf("Xid 79 is judged %s by catalogue %s, want ignore by the site's", match.Action, match.Catalogue)
	}
}

func TestAWrongReasonsFileIsRefusedWithAllThatIsWrongInIt(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"unknown fields and values": {"version: site-1\nrulez: []\nrules:\n- name: a\n  severity: huge\n", []string{`unknown field "rulez"`, `severity "huge"`}},
		"a key that stands twice":   {"version: a\nversion: b\n", []string{`key "version" already set`}},
		"no YAML at all":            {"version: [\n", []string{"did not find expected node content"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := reasonsFile(t, tc.text)
			t.Setenv("SICKBAY_REASONS_FILE", path)
			err := Load(&Worker{})
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("error %v, want one that says that the configuration is wrong", err)
			}
			for _, want := range append(tc.want, "SICKBAY_REASONS_FILE", path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("nothing says %s in\n%v", want, err)
				}
			}
		})
	}
}

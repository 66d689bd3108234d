package directory

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/tests/product"
)

var update = flag.Bool("update", false, "write what the commands of docs/directory.md say into it")

const page = "../../docs/directory.md"

// What differs from run to run.
var (
	uid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	identity = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
	fraction = regexp.MustCompile(`\.[0-9]+Z`)
	number   = regexp.MustCompile(`[0-9]+`)
)

func masked(text string) string {
	text = uid.ReplaceAllString(text, "UID")
	text = identity.ReplaceAllString(text, "ID")
	text = fraction.ReplaceAllString(text, "Z")
	return number.ReplaceAllString(strings.TrimSpace(text), "N")
}

// Every command of the page is run as it stands there, on a site with a device that
// has an open case, and says what the page says that it does.
func TestTheCommandsOfThePageSayWhatItShows(t *testing.T) {
	s := newSite(t)
	s.awaitAll()
	faulty := simulated("node-0", "gpu-0")
	s.hold("train-0", faulty)
	s.fail(faulty)
	s.awaitEntry("the fault and its case, settled", faulty, func(e directory.Entry) error {
		if err := inForce(e); err != nil {
			return err
		}
		if e.Case.Waiting != "WaitingForHolder" || e.Case.LookedAt.IsZero() || e.Seen.Holders[0].Containers == "" {
			return fmt.Errorf("case %+v", e.Case)
		}
		return nil
	})

	eventually(t, "the directory is whole", 60*time.Second, func(ctx context.Context) error {
		states, err := s.Status(ctx)
		if err != nil {
			return err
		}
		for shard, state := range states {
			if !state.WholeSeen || !state.WholeCase {
				return fmt.Errorf("shard %d isn't", shard)
			}
		}
		return nil
	})

	client, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	_, port, _ := strings.Cut(s.stack.RedisAddress(), ":")
	if err := os.WriteFile(filepath.Join(folder, "redis-cli"), fmt.Appendf(nil, "#!/bin/sh\nexec %s -p %s \"$@\"\n", client, port), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.binary, filepath.Join(folder, "sickbay")); err != nil {
		t.Fatal(err)
	}
	env := slices.Concat(os.Environ(), product.Environment(s.stack),
		[]string{"SICKBAY_REDIS_ADDRESSES=" + s.stack.RedisAddress(), "PATH=" + folder + ":" + os.Getenv("PATH")})

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	lines := strings.Split(string(text), "\n")
	commands := 0
	for i := 0; i < len(lines); i++ {
		written = append(written, lines[i])
		command, isCommand := strings.CutPrefix(lines[i], "$ ")
		if !isCommand {
			continue
		}
		commands++
		var shown []string
		for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") && !strings.HasPrefix(lines[i+1], "```") {
			i++
			shown = append(shown, lines[i])
		}
		run := exec.CommandContext(t.Context(), "bash", "-c", command)
		run.Env = env
		said, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("$ %s: %v\n%s", command, err, said)
		}
		if got, want := masked(string(said)), masked(strings.Join(shown, "\n")); got != want && !*update {
			t.Errorf("$ %s says\n%s\nthe page shows\n%s\nwrite it anew with: go -C tests test ./directory -run Page -update", command, said, strings.Join(shown, "\n"))
		}
		written = append(written, strings.TrimSpace(string(said)))
	}
	if commands == 0 {
		t.Error("the page has no commands")
	}
	if *update {
		if err := os.WriteFile(page, []byte(strings.Join(written, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

package directory

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/product"
)

var update = flag.Bool("update", false, "write what the commands of docs/directory.md say into it")

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
	pages.Run(t, pages.Page{
		Path: "docs/directory.md", Mask: masked, Update: *update,
		Env: append(product.Environment(s.stack),
			"SICKBAY_REDIS_ADDRESSES="+s.stack.RedisAddress(), "PATH="+folder+":"+os.Getenv("PATH")),
	})
}

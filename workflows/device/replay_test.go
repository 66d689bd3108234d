package device_test

import (
	"path/filepath"
	"testing"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// leastHistories is how many recorded runs the corpus has at least.
const leastHistories = 10

// A worker of this version can take over every case that an earlier one left
// behind: recorded runs are replayed command by command. Proves a part of K4.
//
// The corpus has a folder for each version that cases may come from: the earliest
// from which an upgrade is promised, under the first seven digits of its commit, and
// each release since, under its number. A folder is recorded by that version itself,
// with `make record CORPUS=…` in a clone of it, and is never changed. It goes when
// an upgrade from it is promised no more.
func TestRecordedRunsReplay(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < leastHistories {
		t.Fatalf("%d recorded runs under testdata, want at least %d; `make record` writes them", len(files), leastHistories)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			// The knobs of the worker that replays are other ones than those that
			// were recorded; a run goes by its own.
			knobs := devicewf.Knobs{Policy: quarantine.DefaultPolicy()}
			replayer := worker.NewWorkflowReplayer()
			replayer.RegisterWorkflowWithOptions(devicewf.New(devicewf.Always(knobs), reason.Builtin().Meaning).Run, workflow.RegisterOptions{Name: devicewf.WorkflowType})
			if err := replayer.ReplayWorkflowHistoryFromJSONFile(nil, file); err != nil {
				t.Error(err)
			}
		})
	}
}

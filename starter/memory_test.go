package starter

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// What is written down is readable, and is read back as it was.
func TestWhoReportedHealthIsReadBackAsItWasWritten(t *testing.T) {
	known := []pair{
		{"gpu.example.com", "anvil-07"}, {"example.com/gpu_shared", "anvil-07"}, {"gpu.example.com", "anvil-08"}, {"nvidia.com/gpu", "harbor-12"},
	}
	data, left := writeMemory(known)
	if left != "" || len(data) != 3 || data["gpu.example.com"] != "anvil-07\nanvil-08\n" || data["example.com_gpu_shared"] != "anvil-07\n" {
		t.Errorf("written as %q, left %q", data, left)
	}
	got := readMemory(data)
	slices.SortFunc(known, comparePairs)
	if !slices.Equal(got, known) {
		t.Errorf("read as %v, want %v", got, known)
	}
	if again, _ := writeMemory(got); fmt.Sprint(again) != fmt.Sprint(data) {
		t.Errorf("written again as %q", again)
	}
	if got := readMemory(map[string]string{"gpu.example.com": "\n  \nanvil-07\r\n"}); len(got) != 1 || got[0].node != "anvil-07" {
		t.Errorf("somebody's edit is read as %v", got)
	}
}

// What doesn't fit is left out, of the driver with most nodes, and named.
func TestWhatIsKnownOfTooManyNodesIsBounded(t *testing.T) {
	var known []pair
	for i := range 30_000 {
		known = append(known, pair{"gpu.example.com", fmt.Sprintf("a-node-with-a-rather-long-name-%06d.example.com", i)})
	}
	known = append(known, pair{"nic.example.com", "anvil-07"})
	data, left := writeMemory(known)
	size := 0
	for file, text := range data {
		size += len(file) + len(text)
	}
	if left != "gpu.example.com" || size > 1<<20 || size < maxMemory*9/10 || data["nic.example.com"] != "anvil-07\n" {
		t.Errorf("%d bytes of %d drivers, left out some of %q", size, len(data), left)
	}
	if lines := strings.Count(data["gpu.example.com"], "\n"); lines != len(readMemory(data))-1 {
		t.Errorf("%d names are written whole, %d are read", lines, len(readMemory(data))-1)
	}
}

// O1, U1: an Unknown that a new starter finds is a loss where an earlier one wrote down
// that its driver reported health there; elsewhere, on nodes that are deleted and on
// those that came anew under the same name, it is one that was never anything else.
func TestALossIsToldFromWhatWasNeverKnownAcrossARestart(t *testing.T) {
	lost, never, other := gpu("anvil-07", "gpu-3"), gpu("anvil-08", "gpu-3"), gpu("anvil-09", "gpu-3")
	s := newScene(t)
	s.kubelets("anvil-07", "anvil-08", "anvil-09")
	s.report("train-0", lost, device.Unknown, "")
	s.report("train-1", never, device.Unknown, "")
	s.report("train-2", other, device.Unknown, "")
	none(t, s.send(), "nothing is remembered")
	s.tracker.remember([]pair{{driver, "anvil-07"}, {"nic.example.com", "anvil-08"}, {driver, "anvil-06"}})
	if e := observed(t, s.send(), lost, true); !e.Lost {
		t.Errorf("told as %+v, want a loss", e)
	}
	known, ok := s.tracker.remembered()
	if !ok || len(known) != 2 || slices.Contains(known, pair{driver, "anvil-06"}) {
		t.Errorf("remembered are %v, want those whose nodes are there", known)
	}
	s.tracker.nodeSeen("anvil-07", "another-uid", nil)
	if known, _ = s.tracker.remembered(); slices.Contains(known, pair{driver, "anvil-07"}) {
		t.Errorf("remembered are %v: of a node made anew nothing is", known)
	}
	s.pass(time.Hour)
	for _, c := range s.send() {
		if c.key != lost {
			t.Errorf("signal %+v", c)
		}
	}
}

// Before all nodes were listed, none is taken for deleted.
func TestNothingIsForgottenBeforeEverythingIsListed(t *testing.T) {
	s := newStandby(t)
	s.tracker.remember([]pair{{driver, "anvil-07"}})
	if known, ok := s.tracker.remembered(); ok {
		t.Errorf("%v would be written down", known)
	}
	s.tracker.nodeSeen("anvil-07", "uid", nil)
	s.tracker.listed()
	if known, ok := s.tracker.remembered(); !ok || len(known) != 1 {
		t.Errorf("%v, %t; want the one that was remembered", known, ok)
	}
}

package starter

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// K1 in part: what can't be sent is shown as waiting, also between two tries.
func TestWhatCanNotBeSentIsSeenToWait(t *testing.T) {
	s := newScene(t)
	for _, name := range []string{"gpu-0", "gpu-1", "gpu-2"} {
		s.report("train-"+name, gpu("anvil-07", name), device.Healthy, "")
	}
	if n := s.tracker.owing(); n != 0 {
		t.Errorf("%d devices wait while all are well", n)
	}
	s.cases.failWith(errAway)
	s.report("train-gpu-0", gpu("anvil-07", "gpu-0"), device.Unhealthy, xid79)
	s.report("train-gpu-1", gpu("anvil-07", "gpu-1"), device.Unhealthy, xid79)
	none(t, s.send(), "while Temporal is away")
	if n := s.tracker.owing(); n != 2 {
		t.Errorf("%d devices wait, want both that are at fault", n)
	}
	s.cases.failWith(nil)
	s.sendWithin(time.Minute, 2)
	if n := s.tracker.owing(); n != 0 {
		t.Errorf("%d devices wait after all was sent", n)
	}
}

// K1, O4 in part: a Healthy that isn't believed isn't counted as one.
func TestDevicesAreCountedByWhatIsBelievedOfThem(t *testing.T) {
	s := newScene(t)
	s.offers("anvil-07", 4, 4)
	s.report("train-0", replica("anvil-07", "GPU-1"), device.Healthy, "")
	s.report("train-1", replica("anvil-07", "GPU-2"), device.Unhealthy, "")
	s.report("train-2", gpu("anvil-07", "gpu-0"), device.Healthy, "")
	counted := func() map[string]float64 {
		counts := map[string]float64{}
		s.tracker.reportedDevices(func(n float64, labels ...string) { counts[fmt.Sprint(labels)] = n })
		return counts
	}
	driver := gpu("anvil-07", "gpu-0").Driver
	want := map[string]float64{
		fmt.Sprint([]string{plugin, "Healthy"}): 1, fmt.Sprint([]string{plugin, "Unhealthy"}): 1, fmt.Sprint([]string{driver, "Healthy"}): 1,
	}
	if got := counted(); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	s.offers("anvil-07", 4, 0)
	s.pass(time.Minute)
	delete(want, fmt.Sprint([]string{plugin, "Healthy"}))
	want[fmt.Sprint([]string{plugin, "Unknown"})] = 1
	if got := counted(); !maps.Equal(got, want) {
		t.Errorf("with the plugin away counted %v, want %v", got, want)
	}
}

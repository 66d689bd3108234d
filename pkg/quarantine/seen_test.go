package quarantine_test

import (
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// K3: of all that came with one signal, the trail names the reading that led to the
// decision, whatever its Pod is called.
func TestTheTrailNamesTheReadingThatCounted(t *testing.T) {
	for _, bad := range []string{"a", "b", "c"} {
		var readings []*ReadingBuilder
		for _, pod := range []string{"a", "b", "c"} {
			reading := MakeReading(pod)
			if pod == bad {
				reading.Unhealthy(fatalFault)
			}
			readings = append(readings, reading)
		}
		c, _ := quarantine.Decide(quarantine.Case{Device: gpu}, observed(readings...)(quarantine.Case{}, start), start, enforce())
		opened := c.Notices[0]
		if opened.Kind != quarantine.NoticeOpened || !strings.Contains(opened.Seen, "/"+bad+": Unhealthy") {
			t.Errorf("%s is at fault, and the case was opened on %q", bad, opened.Seen)
		}
	}
}

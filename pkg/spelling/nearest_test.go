package spelling

import (
	"slices"
	"testing"
)

func TestTheNameThatWasMeantIsFound(t *testing.T) {
	known := []string{"Quarantined", "Suspect", "Retired", "gpu-0", "gpu-1"}
	for name, tc := range map[string]struct {
		written, nearest string
		near             []string
	}{
		"a letter too few":      {"Quarantned", "Quarantined", []string{"Quarantined"}},
		"two that are as near":  {"gpu-2", "gpu-0", []string{"gpu-0", "gpu-1"}},
		"nothing like it":       {"Banana", "", nil},
		"the word itself":       {"Suspect", "Suspect", []string{"Suspect"}},
		"nothing written":       {"", "", nil},
		"more than a third off": {"Retry", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Nearest(tc.written, known); got != tc.nearest {
				t.Errorf("nearest to %q is %q, want %q", tc.written, got, tc.nearest)
			}
			if got := Near(tc.written, known, 3); !slices.Equal(got, tc.near) {
				t.Errorf("near %q are %v, want %v", tc.written, got, tc.near)
			}
		})
	}
}

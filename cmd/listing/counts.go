package listing

import "slices"

// Counts is how many devices of a listing stand where.
type Counts struct {
	Devices int `json:"devices"`
	// Faulty have a case, a mark, or a report that isn't Healthy.
	Faulty int `json:"faulty"`
	// Phases has each phase that occurs, the gravest first. Devices without a
	// case are counted as None.
	Phases []PhaseCount `json:"phases"`
	// Unmapped is nil where nobody could tell.
	Unmapped *int `json:"unmapped"`
	// Blind, Problems and Notes are the listing's: what may be wrong with the counts.
	Blind    []string `json:"blind,omitempty"`
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// PhaseCount is how many devices are in a phase.
type PhaseCount struct {
	Phase   string `json:"phase"`
	Devices int    `json:"devices"`
}

// Count counts a listing's devices by phase.
func (l Listing) Count() Counts {
	counts := Counts{Devices: len(l.Devices), Phases: []PhaseCount{}, Blind: l.Blind, Problems: l.Problems, Notes: l.Notes}
	if l.Unmapped != nil {
		unmapped := len(l.Unmapped)
		counts.Unmapped = &unmapped
	}
	byPhase := map[string]int{}
	for _, d := range l.Devices {
		byPhase[phaseOf(d)]++
		if d.Faulty() {
			counts.Faulty++
		}
	}
	last := len(Phases()) - 1
	for _, phase := range slices.Concat(Phases()[:last], []string{unknownPhase}, Phases()[last:]) {
		if byPhase[phase] > 0 {
			counts.Phases = append(counts.Phases, PhaseCount{Phase: phase, Devices: byPhase[phase]})
		}
	}
	return counts
}

package cmd

import (
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Whoever takes a device out by hand is told what else stands for the same hardware: it has
// a mark of its own, and would be given out as ever.
func TestWhatSharesItsHardwareIsToldToWhoTakesADeviceOut(t *testing.T) {
	listed := func(name, uuid string) device.Listed {
		return device.Listed{Name: name, Attributes: map[string]string{"uuid": uuid}}
	}
	survey := listing.NewSurvey(listing.Cluster{Slices: []device.Slice{{
		Driver: "gpu.example.com", Pool: "node-0", Node: "node-0", Generation: 1, SliceCount: 1,
		Devices: []device.Listed{listed("gpu-0", "GPU-a"), listed("gpu-0-again", "GPU-a"), listed("gpu-1", "GPU-b")},
	}}})
	named := func(name string) device.Key {
		key, err := survey.Resolve("gpu.example.com/node-0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	notes := sameHardware(survey, named("gpu-0"))
	if len(notes) != 1 || !strings.Contains(notes[0], "gpu-0-again is another entry for the same hardware") || !strings.Contains(notes[0], "name it as well") {
		t.Errorf("of a device that is listed twice it is said: %q", notes)
	}
	if notes := sameHardware(survey, named("gpu-1")); len(notes) != 0 {
		t.Errorf("of a device that is listed once it is said: %q", notes)
	}
}

// A node or a pool of which not everything could be read is not taken out by half.
func TestHalfANodeIsNotTakenOut(t *testing.T) {
	read := listing.Cluster{
		Slices:   []device.Slice{{Driver: "gpu.example.com", Pool: "node-0", Node: "node-0", Generation: 1, SliceCount: 1, Devices: []device.Listed{{Name: "gpu-0"}}}},
		Problems: []string{"Pods can't be read"},
	}
	if got, err := manyNamed(read, "node", "node-0"); err == nil || len(got.keys) != 0 || !strings.Contains(err.Error(), "none was taken out: Pods can't be read; try again") {
		t.Errorf("named %v, %v", got.keys, err)
	}
	read.Problems = nil
	if got, err := manyNamed(read, "node", "node-0"); err != nil || len(got.keys) != 1 {
		t.Errorf("named %v, %v", got.keys, err)
	}
}

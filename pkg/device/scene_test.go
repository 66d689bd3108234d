package device_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// scene is one file of testdata: what kubelets and drivers wrote, in this
// package's own form, and what the case adds to it.
type scene struct {
	About, Note string
	// Source and Sources say who wrote it, or where the case was reported.
	Source   string
	Sources  []string
	Pods     []device.Pod
	Claims   []device.Claim
	Slices   []device.Slice
	Steps    []step
	Replicas []string
	Faults   []fault
}

// step is one reading of gpu.example.com/anvil-07/gpu-3 in one Pod.
type step struct {
	AtSeconds int
	Version   device.Version
	Health    device.Health
	Belief    string
}

// fault is one fault of a family of devices and whom it concerns.
type fault struct {
	AtSeconds       int
	Message         string
	Device, Replica string
	Scope           device.Scope
	Concerned       []string
}

func load(t testing.TB, name string) scene {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var s scene
	if err := decoder.Decode(&s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

func (s scene) lookup(namespace, name string) (device.Claim, bool) {
	for _, c := range s.Claims {
		if c.Namespace == namespace && c.Name == name {
			return c, true
		}
	}
	return device.Claim{}, false
}

func (s scene) pool(key device.PoolKey, slice int) device.Pool {
	return device.AssemblePool(key, s.Slices[slice:slice+1])
}

// dra returns the key that "driver/pool/device" names.
func dra(t testing.TB, text string) device.Key {
	t.Helper()
	key, err := device.ParseDRA(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func plugin(t testing.TB, node, resource, id string) device.Key {
	t.Helper()
	key, err := device.NewPlugin(node, resource, id)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// claims makes a lookup of claims.
func claims(all ...device.Claim) device.ClaimLookup { return scene{Claims: all}.lookup }

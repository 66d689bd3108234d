package fakedriver

// This file is about preparing claims: which devices a claim gets, when a
// second claim of the same device is refused, and which CDI IDs are handed out.

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// PreparedDevice is one device of a prepared claim.
type PreparedDevice struct {
	Request string   `json:"request"`
	Pool    string   `json:"pool"`
	Device  string   `json:"device"`
	Admin   bool     `json:"admin,omitempty"`
	CDI     []string `json:"cdi,omitempty"`
}

// PreparedClaim is a claim that Prepare accepted and Unprepare has not seen.
type PreparedClaim struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Devices   []PreparedDevice `json:"devices"`
}

// prepared maps claim UIDs to claims.
type prepared map[types.UID]PreparedClaim

// overlapping returns an error when the rule forbids that claim uid gets one of
// the devices.
func (p prepared) overlapping(rule Overlap, uid types.UID, devices []PreparedDevice) error {
	if rule == OverlapAllow {
		return nil
	}
	for _, want := range devices {
		if rule == OverlapAdmin && want.Admin {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(p)) {
			if other == uid {
				continue
			}
			for _, has := range p[other].Devices {
				if has.Pool != want.Pool || has.Device != want.Device || rule == OverlapAdmin && has.Admin {
					continue
				}
				return fmt.Errorf("requested device %s is already allocated to different claim %s", want.Device, other)
			}
		}
	}
	return nil
}

// devicesOf picks the driver's own results out of a claim's allocation.
func devicesOf(claim *resourceapi.ResourceClaim, driver string, mode CDI) []PreparedDevice {
	var out []PreparedDevice
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != driver {
			continue
		}
		d := PreparedDevice{Request: r.Request, Pool: r.Pool, Device: r.Device, Admin: r.AdminAccess != nil && *r.AdminAccess}
		if id := cdiID(mode, driver, claim.UID, r.Device); id != "" {
			d.CDI = []string{id}
		}
		out = append(out, d)
	}
	return out
}

func cdiID(mode CDI, driver string, claim types.UID, device string) string {
	switch mode {
	case CDIDevice:
		return cdiKind(mode, driver) + "=" + device
	case CDIClaim:
		return cdiKind(mode, driver) + "=" + string(claim) + "-" + device
	}
	return ""
}

func cdiKind(mode CDI, driver string) string {
	if mode == CDIClaim {
		return "k8s." + driver + "/claim"
	}
	return driver + "/gpu"
}

// cdiSpec is a CDI specification file of version 0.6.0. Each device sets one
// environment variable, so that a container can show what it was given.
func cdiSpec(mode CDI, driver string, claim types.UID, devices []Device) ([]byte, error) {
	type edits struct {
		Env []string `json:"env"`
	}
	type device struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	}
	spec := struct {
		Version string   `json:"cdiVersion"`
		Kind    string   `json:"kind"`
		Devices []device `json:"devices"`
	}{Version: "0.6.0", Kind: cdiKind(mode, driver)}
	for _, d := range devices {
		name := d.Name
		if mode == CDIClaim {
			name = string(claim) + "-" + d.Name
		}
		env := "FAKE_DEVICE_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(d.Name)) + "=" + d.UUID
		spec.Devices = append(spec.Devices, device{Name: name, Edits: edits{Env: []string{env}}})
	}
	return json.MarshalIndent(spec, "", " ")
}

func (d *driver) cdiPath(claim types.UID) string {
	if claim == "" {
		return filepath.Join(d.cfg.CDIDir, d.cfg.Name+"-gpu.json")
	}
	return filepath.Join(d.cfg.CDIDir, "k8s."+d.cfg.Name+"-claim_"+string(claim)+".json")
}

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin]. The helper calls
// it for one request at a time, over all instances of the driver.
func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		d.log.Info("prepare", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "devices", devices, "error", err)
		out[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return out, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	d.mu.Lock()
	rule, mode := d.cfg.Overlap, d.cfg.CDI
	hardware := slices.Clone(d.inv.Devices)
	d.mu.Unlock()

	p := prepared{}
	if _, err := load(d.preparedFile(), &p); err != nil {
		return nil, err
	}
	if done, ok := p[claim.UID]; ok {
		return handedOut(done.Devices), nil
	}
	devices := devicesOf(claim, d.cfg.Name, mode)
	if err := p.overlapping(rule, claim.UID, devices); err != nil {
		return nil, fmt.Errorf("prepare claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	if mode == CDIClaim {
		inv := inventory{Devices: hardware}
		var mine []Device
		for _, want := range devices {
			dev, err := inv.find(want.Device)
			if err != nil {
				return nil, fmt.Errorf("prepare claim %s/%s: %w", claim.Namespace, claim.Name, err)
			}
			mine = append(mine, *dev)
		}
		spec, err := cdiSpec(mode, d.cfg.Name, claim.UID, mine)
		if err != nil {
			return nil, fmt.Errorf("prepare claim %s/%s: encode CDI spec: %w", claim.Namespace, claim.Name, err)
		}
		if err := writeFile(d.cdiPath(claim.UID), spec); err != nil {
			return nil, fmt.Errorf("prepare claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	p[claim.UID] = PreparedClaim{Namespace: claim.Namespace, Name: claim.Name, Devices: devices}
	if err := save(d.preparedFile(), p); err != nil {
		return nil, fmt.Errorf("prepare claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return handedOut(devices), nil
}

func handedOut(devices []PreparedDevice) []kubeletplugin.Device {
	out := make([]kubeletplugin.Device, 0, len(devices))
	for _, d := range devices {
		out = append(out, kubeletplugin.Device{
			Requests: []string{d.Request}, PoolName: d.Pool, DeviceName: d.Device, CDIDeviceIDs: d.CDI,
		})
	}
	return out
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, claim := range claims {
		err := d.unprepare(claim.UID)
		d.log.Info("unprepare", "claim", claim.String(), "uid", claim.UID, "error", err)
		out[claim.UID] = err
	}
	return out, nil
}

func (d *driver) unprepare(uid types.UID) error {
	p := prepared{}
	if _, err := load(d.preparedFile(), &p); err != nil {
		return err
	}
	if _, ok := p[uid]; !ok {
		return nil
	}
	delete(p, uid)
	if d.cfg.CDIDir != "" {
		if err := os.Remove(d.cdiPath(uid)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("unprepare claim %s: remove its CDI spec: %w", uid, err)
		}
	}
	return save(d.preparedFile(), p)
}

func (d *driver) preparedFile() string { return filepath.Join(d.cfg.StateDir, "prepared.json") }

// HandleError implements [kubeletplugin.DRAPlugin]: background errors are
// logged and kept for the test to see; none ends the driver.
func (d *driver) HandleError(_ context.Context, err error, msg string) {
	d.log.Error("background error", slog.String("what", msg), slog.Any("error", err))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errors = append(d.errors, msg+": "+err.Error())
	if len(d.errors) > maxErrors {
		d.errors = d.errors[len(d.errors)-maxErrors:]
	}
}

package kube

import (
	"strconv"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Q5: whatever somebody changes of what a mark says shows; what they add for
// themselves doesn't count.
func TestEveryEditOfAMarkShows(t *testing.T) {
	key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	if err != nil {
		t.Fatal(err)
	}
	made, err := NewMark(quarantine.PutMark{
		Device: key, Node: "anvil-07", Epoch: 1772352000000, Revision: 1, Message: "XID 79: GPU has fallen off the bus",
		Reason: reason.Builtin().Match(key.Driver, "XID 79: GPU has fallen off the bus"), Severity: reason.SeverityFatal, Actor: "sickbay",
		Since: time.UnixMilli(1772352000000), Until: time.UnixMilli(1772355600000),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		edit   func(*resourcev1.DeviceTaintRule)
		intact bool
		epoch  int64
	}{
		"as it was made":                       {func(*resourcev1.DeviceTaintRule) {}, true, 1772352000000},
		"somebody's own label":                 {func(r *resourcev1.DeviceTaintRule) { r.Labels["team"] = "kestrel" }, true, 1772352000000},
		"the epoch":                            {func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Value = "5" }, false, 5},
		"an epoch that can't be one":           {func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Value = "9223372036854775807" }, false, 0},
		"an epoch that isn't a number":         {func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Value = "soon" }, false, 0},
		"the effect":                           {func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Effect = "None" }, false, 1772352000000},
		"the selector":                         {func(r *resourcev1.DeviceTaintRule) { r.Spec.DeviceSelector.Pool = nil }, false, 1772352000000},
		"the severity":                         {func(r *resourcev1.DeviceTaintRule) { r.Labels[LabelSeverity] = "minor" }, false, 1772352000000},
		"the reason":                           {func(r *resourcev1.DeviceTaintRule) { r.Labels[LabelReason] = "Nothing" }, false, 1772352000000},
		"what the driver said":                 {func(r *resourcev1.DeviceTaintRule) { r.Annotations[AnnotationWhy] = "all fine" }, false, 1772352000000},
		"until when":                           {func(r *resourcev1.DeviceTaintRule) { delete(r.Annotations, AnnotationUntil) }, false, 1772352000000},
		"that it is retired":                   {func(r *resourcev1.DeviceTaintRule) { r.Annotations[AnnotationPhase] = "Retired" }, false, 1772352000000},
		"the seal":                             {func(r *resourcev1.DeviceTaintRule) { delete(r.Annotations, AnnotationSeal) }, false, 1772352000000},
		"the last epoch that can be one":       {func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Value = strconv.Itoa(maxEpoch) }, false, 0},
		"the last that is believed of an edit": {func(r *resourcev1.DeviceTaintRule) { r.Spec.Taint.Value = strconv.Itoa(maxEdited) }, false, maxEdited},
		"one above it, as a case writes it": {func(r *resourcev1.DeviceTaintRule) {
			r.Spec.Taint.Value = strconv.Itoa(maxEdited + 1)
			r.Annotations[AnnotationSeal] = sealOf(r)
		}, true, maxEdited + 1},
	} {
		t.Run(name, func(t *testing.T) {
			rule := made.DeepCopy()
			row.edit(rule)
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rule)
			if err != nil {
				t.Fatal(err)
			}
			mark, ours := ReadMark(&unstructured.Unstructured{Object: content})
			if !ours || mark.Intact != row.intact || mark.Found.Epoch != row.epoch {
				t.Errorf("ours %t, intact %t, epoch %d; want ours, intact %t, epoch %d", ours, mark.Intact, mark.Found.Epoch, row.intact, row.epoch)
			}
		})
	}
}

// Q4: a mark tells when its device was first not good, and one that doesn't, or can't have
// it right, is as intact without.
func TestAMarkTellsWhenItsDeviceWasFirstNotGood(t *testing.T) {
	key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	if err != nil {
		t.Fatal(err)
	}
	first, opened := time.UnixMilli(1772352000000), time.UnixMilli(1772352010000)
	for name, row := range map[string]struct {
		edit func(map[string]string)
		want int64
	}{
		"as it was made":           {func(map[string]string) {}, first.UnixMilli()},
		"by an earlier version":    {func(a map[string]string) { delete(a, AnnotationFirst) }, 0},
		"later than its case":      {func(a map[string]string) { a[AnnotationFirst] = "2026-12-01T00:00:00Z" }, 0},
		"before there were clocks": {func(a map[string]string) { a[AnnotationFirst] = "1912-06-23T00:00:00Z" }, 0},
		"no time":                  {func(a map[string]string) { a[AnnotationFirst] = "yesterday" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := NewMark(quarantine.PutMark{
				Device: key, Epoch: opened.UnixMilli(), Revision: 1, Severity: reason.SeverityMinor, Actor: "sickbay",
				Since: opened, FirstNotGood: first, Until: opened.Add(time.Hour), Restricted: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			row.edit(made.Annotations)
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(made)
			if err != nil {
				t.Fatal(err)
			}
			mark, ours := ReadMark(&unstructured.Unstructured{Object: content})
			if !ours || !mark.Intact || mark.Found.FirstNotGood != row.want || mark.Found.Since != opened.UnixMilli() {
				t.Errorf("ours %t, intact %t, first not good %d, since %d; want first not good %d", ours, mark.Intact, mark.Found.FirstNotGood, mark.Found.Since, row.want)
			}
		})
	}
}

// Q10: that a node is deleted says nothing of a device that is on no node, or on
// another one, however often it was seen from there.
func TestADeletedNodeTakesOnlyItsOwnDevices(t *testing.T) {
	key, err := device.NewDRA("nic.example.com", "fabric", "nic-0")
	if err != nil {
		t.Fatal(err)
	}
	pool := func(node string, devices ...string) *device.Pool {
		var all []device.Slice
		if len(devices) > 0 {
			slice := device.Slice{Driver: key.Driver, Pool: key.Pool, Node: node, Generation: 1, SliceCount: 1}
			for _, name := range devices {
				slice.Devices = append(slice.Devices, device.Listed{Name: name})
			}
			all = append(all, slice)
		}
		assembled := device.AssemblePool(device.PoolKey{Driver: key.Driver, Pool: key.Pool}, all)
		return &assembled
	}
	for name, row := range map[string]struct {
		pool *device.Pool
		want device.MissingReason
	}{
		"in a pool on no node":           {pool("", "nic-0"), ""},
		"in a pool on another node":      {pool("anvil-08", "nic-0"), ""},
		"no longer in a pool on no node": {pool("", "nic-1"), device.MissingFromPool},
		"in the pool of the node":        {pool("anvil-07", "nic-0"), device.NodeDeleted},
		"in a pool that went as a whole": {pool(""), device.NodeDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			found := presence(quarantine.Look{Device: key}, row.pool, "anvil-07", nodeState{name: "anvil-07", gone: true})
			if found == nil || found.Missing != row.want || found.Present != (row.want == "") {
				t.Errorf("found %+v, want missing %q", found, row.want)
			}
		})
	}
}

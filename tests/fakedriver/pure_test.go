package fakedriver

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// complete fills in what a profile leaves to the node.
func complete(c Config) Config {
	c.Node, c.Kubeconfig, c.KubeletRoot, c.StateDir, c.CDIDir = "n1", "/k", "/r", "/s", "/c"
	return c
}

func TestFlagsCarryTheWholeConfiguration(t *testing.T) {
	for name, c := range map[string]Config{
		"nasty": complete(Defaults(Nasty)),
		"plain": complete(Defaults(Plain)),
		"plain, but all set otherwise": func() Config {
			c := complete(Defaults(Plain))
			c.Pool, c.Instance, c.AddressFile = "row1/rack2", "i1", "/a"
			c.Devices, c.Partitions = 8, 7
			c.HealthAPI, c.CDI, c.Overlap = HealthNone, CDIDevice, OverlapRefuse
			c.OwnTaints, c.Memory = true, false
			c.UnknownFirst, c.Loss, c.Seed, c.Resend, c.Timeout = time.Minute, 0.25, 7, time.Hour, 3*time.Second
			return c
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseFlags(c.Args(), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c) {
				t.Errorf("came back as\n%+v\nwant\n%+v", got, c)
			}
		})
	}
}

func TestAProfileSetsWhatItsFlagsDoNot(t *testing.T) {
	args := []string{"-profile=plain", "-node=n", "-kubeconfig=k", "-kubelet-root=r", "-state-dir=s", "-devices=5"}
	c, err := ParseFlags(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.CDI != CDIOff || c.Loss != 0 || !c.Memory || c.Devices != 5 {
		t.Errorf("plain with 5 devices came out as %+v", c)
	}
	c, err = ParseFlags(append(args[1:], "-cdi-dir=c"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.Profile != Nasty || c.CDI != CDIClaim || c.Loss == 0 || c.Memory || c.UnknownFirst == 0 || !c.OwnTaints {
		t.Errorf("without a profile the driver is not nasty: %+v", c)
	}
}

func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	c := Defaults(Nasty)
	c.Loss, c.Devices, c.Timeout, c.CDI = 2, -1, time.Millisecond, "some"
	err := c.validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"-node is not set", "-kubeconfig is not set", "-state-dir is not set",
		`-cdi is "some": allowed are ["off" "device" "claim"]`, "-loss is 2: allowed is 0 to 1",
		"-devices is -1", "only whole seconds",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in:\n%v", want, err)
		}
	}
}

func TestEventsLookAsTheVendorsDriverMakesThem(t *testing.T) {
	const drv = "gpu.nvidia.com"
	sick := Health{Status: kubeletplugin.HealthStatusUnhealthy, Message: "critical XID 48 reported by NVML"}
	for name, tc := range map[string]struct {
		before Health
		event  func(*Device)
		want   Health
		taint  string
	}{
		"a fatal Xid": {
			event: func(d *Device) { d.xid(drv, 79, true) },
			want:  Health{Status: kubeletplugin.HealthStatusUnhealthy, Message: "critical XID 79 reported by NVML"},
			taint: "gpu.nvidia.com/xid=79:NoSchedule",
		},
		"an application's Xid leaves the device healthy": {
			event: func(d *Device) { d.xid(drv, 13, true) },
			want:  Health{Status: kubeletplugin.HealthStatusHealthy, Message: "non-fatal XID 13 reported by NVML"},
			taint: "gpu.nvidia.com/xid=13:None",
		},
		"an application's Xid does not hide a fatal one": {
			before: sick,
			event:  func(d *Device) { d.xid(drv, 13, true) },
			want:   sick,
		},
		"a lost card": {
			event: func(d *Device) { d.lost(drv, true) },
			want:  Health{Status: kubeletplugin.HealthStatusUnhealthy, Message: "GPU is lost"},
			taint: "gpu.nvidia.com/gpu-lost=:NoSchedule",
		},
		"a card that cannot be watched": {
			event: func(d *Device) { d.unmonitored(drv, true) },
			want:  Health{Status: kubeletplugin.HealthStatusUnknown, Message: "device health is not monitored"},
			taint: "gpu.nvidia.com/unmonitored=:None",
		},
		"a driver that does not taint": {
			event: func(d *Device) { d.xid(drv, 79, false) },
			want:  Health{Status: kubeletplugin.HealthStatusUnhealthy, Message: "critical XID 79 reported by NVML"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Device{Name: "gpu-0", Health: tc.before}
			tc.event(&d)
			if d.Health != tc.want {
				t.Errorf("health is %+v, want %+v", d.Health, tc.want)
			}
			var taint string
			if d.OwnTaint != nil {
				taint = d.OwnTaint.Key + "=" + d.OwnTaint.Value + ":" + string(d.OwnTaint.Effect)
			}
			if taint != tc.taint {
				t.Errorf("taint is %q, want %q", taint, tc.taint)
			}
		})
	}
}

func TestHardwareOutlivesTheDriverAndHealthDoesNot(t *testing.T) {
	c := complete(Defaults(Nasty))
	c.Devices, c.Partitions = 2, 2
	inv := newInventory(c)
	old := inv.Devices[0]
	if got, want := len(inv.Devices), 6; got != want {
		t.Fatalf("%d devices, want %d", got, want)
	}
	if again := newInventory(c); !reflect.DeepEqual(again, inv) {
		t.Error("the same node has other hardware the second time")
	}

	swapped, err := inv.swap("gpu-0")
	if err != nil {
		t.Fatal(err)
	}
	if swapped.UUID == old.UUID || swapped.PCIBusID != old.PCIBusID || swapped.Name != old.Name {
		t.Errorf("swap made %+v of %+v: only the UUID may differ", swapped, old)
	}
	if err := inv.vanish("gpu-1"); err != nil {
		t.Fatal(err)
	}
	for _, d := range inv.Devices {
		if d.Name == "gpu-1" || d.Parent == "gpu-1" {
			t.Errorf("%s is still there", d.Name)
		}
	}
	d, err := inv.find("gpu-0")
	if err != nil {
		t.Fatal(err)
	}
	d.xid(c.Name, 79, true)
	inv.forget(0)
	if d.Health.Status != kubeletplugin.HealthStatusHealthy || d.OwnTaint != nil || d.UUID != swapped.UUID || len(inv.Devices) != 3 {
		t.Errorf("a driver that forgot has %+v of %d devices", d, len(inv.Devices))
	}
	if err := inv.vanish("gpu-9"); err == nil || !strings.Contains(err.Error(), "gpu-0-mig-1g-1") {
		t.Errorf("an unknown device gives %v: it should name those that are there", err)
	}
}

func TestASecondClaimOfADevice(t *testing.T) {
	tenant := []PreparedDevice{{Pool: "n1", Device: "gpu-0"}}
	admin := []PreparedDevice{{Pool: "n1", Device: "gpu-0", Admin: true}}
	for name, tc := range map[string]struct {
		rule       Overlap
		has, wants []PreparedDevice
		refused    bool
	}{
		"a careless driver gives it out twice":              {OverlapAllow, tenant, tenant, false},
		"NVIDIA's refuses a second tenant":                  {OverlapAdmin, tenant, tenant, true},
		"NVIDIA's lets an admin claim in":                   {OverlapAdmin, tenant, admin, false},
		"NVIDIA's does not count an admin claim as holder":  {OverlapAdmin, admin, tenant, false},
		"a naive one refuses the admin claim":               {OverlapRefuse, tenant, admin, true},
		"a naive one blocks the tenant behind admin claims": {OverlapRefuse, admin, tenant, true},
		"another device is no overlap":                      {OverlapRefuse, tenant, []PreparedDevice{{Pool: "n1", Device: "gpu-1"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := prepared{"first": {Devices: tc.has}}
			if err := p.overlapping(tc.rule, "second", tc.wants); (err != nil) != tc.refused {
				t.Errorf("got %v", err)
			}
			if err := p.overlapping(tc.rule, "first", tc.has); err != nil {
				t.Errorf("the same claim again: %v", err)
			}
		})
	}
}

func TestCDIIDsTakeTheirThreeShapes(t *testing.T) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "c1"}}
	yes := true
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: "gpu.nvidia.com", Pool: "n1", Device: "gpu-0"},
			{Request: "gpu", Driver: "gpu.nvidia.com", Pool: "n1", Device: "gpu-1", AdminAccess: &yes},
			{Request: "nic", Driver: "other.example.com", Pool: "n1", Device: "nic-0"},
		},
	}}
	for mode, want := range map[CDI][]string{
		CDIOff:    {"", ""},
		CDIDevice: {"gpu.nvidia.com/gpu=gpu-0", "gpu.nvidia.com/gpu=gpu-1"},
		CDIClaim:  {"k8s.gpu.nvidia.com/claim=c1-gpu-0", "k8s.gpu.nvidia.com/claim=c1-gpu-1"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			devices := devicesOf(claim, "gpu.nvidia.com", mode)
			if len(devices) != 2 || devices[0].Admin || !devices[1].Admin {
				t.Fatalf("devices are %+v", devices)
			}
			for i, d := range devices {
				if got := strings.Join(d.CDI, " "); got != want[i] {
					t.Errorf("device %d has %q, want %q", i, got, want[i])
				}
			}
			if mode == CDIOff {
				return
			}
			raw, err := cdiSpec(mode, "gpu.nvidia.com", claim.UID, []Device{{Name: "gpu-0", UUID: "GPU-x"}})
			if err != nil {
				t.Fatal(err)
			}
			var spec struct {
				Kind    string
				Devices []struct {
					Name  string
					Edits struct{ Env []string } `json:"containerEdits"`
				}
			}
			if err := json.Unmarshal(raw, &spec); err != nil {
				t.Fatal(err)
			}
			if id := spec.Kind + "=" + spec.Devices[0].Name; id != want[0] || spec.Devices[0].Edits.Env[0] != "FAKE_DEVICE_GPU_0=GPU-x" {
				t.Errorf("the spec describes %s with %v, want %s", id, spec.Devices[0].Edits.Env, want[0])
			}
		})
	}
}

func TestPartitionsShareTheCountersOfTheirCard(t *testing.T) {
	c := complete(Defaults(Nasty))
	c.Pool, c.Devices, c.Partitions = "row1/rack2", 2, 3
	inv := newInventory(c)
	inv.Devices[0].xid(c.Name, 79, true)
	pool, ok := resources(c.poolName(), inv.Devices, 4).Pools["row1/rack2"]
	if !ok || pool.Generation != 4 || len(pool.Slices) != 3 {
		t.Fatalf("pool is %+v", pool)
	}
	if sets := pool.Slices[0].SharedCounters; len(sets) != 2 || len(pool.Slices[0].Devices) != 0 {
		t.Errorf("the first slice has %d counter sets and %d devices: want 2 and none", len(sets), len(pool.Slices[0].Devices))
	}
	card := pool.Slices[1].Devices
	if len(card) != 4 || card[0].Taints[0].Key != "gpu.nvidia.com/xid" || len(card[1].Taints) != 0 {
		t.Fatalf("the first card is %+v", card)
	}
	used := map[string]int{}
	for _, part := range card[1:] {
		if *part.Attributes["parentUUID"].StringValue != inv.Devices[0].UUID {
			t.Errorf("%s has parent %v", part.Name, part.Attributes["parentUUID"])
		}
		for k := range part.ConsumesCounters[0].Counters {
			used[k]++
		}
	}
	if len(used) != 3 || len(card[0].ConsumesCounters[0].Counters) != memorySlices {
		t.Errorf("three partitions use %v, the card %d slices", used, len(card[0].ConsumesCounters[0].Counters))
	}
}

func TestLostReportsAreBoundedAndRepeatable(t *testing.T) {
	for _, rate := range []float64{0, 0.3, 1} {
		a, b := newLossy(rate, 5), newLossy(rate, 5)
		row, lost := 0, 0
		for range 1000 {
			drop := a.drop()
			if drop != b.drop() {
				t.Fatal("the same seed lost another report")
			}
			if row++; !drop {
				row = 0
			} else {
				lost++
			}
			if row > maxLost {
				t.Fatalf("%d reports lost in a row at rate %v", row, rate)
			}
		}
		if (rate == 0) != (lost == 0) {
			t.Errorf("at rate %v %d of 1000 were lost", rate, lost)
		}
	}
}

package kubelet

// This file is what maintenance does to a node that works: its drivers are restarted
// one after the other, and its kubelet is. Whatever is thought of their devices
// meanwhile, nothing of it stays.

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/fakedriver"
	"github.com/sickbay-dev/sickbay/tests/realnode"
)

func restarts() []test {
	return []test{
		{name: "a kubelet that restarts leaves every device as it was", run: kubeletRestartLeavesNothing, alone: true},
		{name: "drivers that are restarted one after the other leave every device as it was", run: rollingRestartLeavesNothing},
	}
}

// away is how long a driver is restarted for: until the kubelet has deleted its
// slices, 30 s, and some more. That is past the suite's window and well inside the
// product's own.
const away = 45 * time.Second

// settled bounds the time until nothing is left of a restart: what a case looks at
// again after a while, its health that has to last, its mark that has to go.
const settled = 90 * time.Second

// standing is what an operator sees of a device: whether it is listed, how it is, who
// has it, and whether there is a case or a mark.
type standing struct {
	Listed bool
	Health device.Health
	Holder string
	Phase  quarantine.Phase
	Marked bool
}

func (s *suite) standing(ctx context.Context, drivers ...*realnode.Driver) (map[string]standing, error) {
	l, err := s.devicesCommand(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]standing{}
	for _, d := range l.Devices {
		for _, driver := range drivers {
			if d.Key.Driver != driver.Config.Name {
				continue
			}
			now := standing{Listed: d.Listed, Health: d.Health, Phase: d.Phase, Marked: d.Mark != nil}
			for _, h := range d.Holders {
				now.Holder += h.UID
			}
			found[d.Name] = now
		}
	}
	return found, nil
}

// tenant starts a driver of two devices and a Pod that has one of them.
func (s *suite) tenant(t *testing.T) (*realnode.Driver, *corev1.Pod) {
	t.Helper()
	d := s.driver(t, func(c *fakedriver.Config) { c.Devices, c.CDI, c.OwnTaints = 2, fakedriver.CDIOff, false })
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	_, held := s.held(t, pod)
	s.shows(t, soon, pod.Name, "dra-healthy", map[string]string{"driver": d.Config.Name, "pool": s.node.Name(), "device": held[0]})
	return d, pod
}

// leavesNothing lets something be restarted, and checks that every device of the
// drivers is in the end as it was: listed, its health, its holder, no open case, no mark.
func (s *suite) leavesNothing(t *testing.T, pods []*corev1.Pod, drivers []*realnode.Driver, restart func()) {
	t.Helper()
	before, err := s.standing(t.Context(), drivers...)
	must(t, err)
	if len(before) != 2*len(drivers) {
		t.Fatalf("of %d drivers with two devices each, there are %v", len(drivers), before)
	}
	var checks []func()
	for _, pod := range pods {
		checks = append(checks, s.untouched(t, pod))
	}
	restart()
	within(t, settled, "every device is as it was", func(ctx context.Context) error {
		now, err := s.standing(ctx, drivers...)
		if err == nil && !reflect.DeepEqual(now, before) {
			err = fmt.Errorf("before %+v\nnow    %+v", before, now)
		}
		return err
	})
	for _, d := range drivers {
		for _, name := range []string{"gpu-0", "gpu-1"} {
			s.noCase(t, s.key(t, d.Config.Name, name))
		}
		if marks := s.marked(t, d.Config.Name); len(marks) != 0 {
			t.Errorf("marks of %s: %v, want none", d.Config.Name, marks)
		}
	}
	for _, check := range checks {
		check()
	}
}

func rollingRestartLeavesNothing(t *testing.T, s *suite) {
	var drivers []*realnode.Driver
	var pods []*corev1.Pod
	for range 2 {
		d, pod := s.tenant(t)
		drivers, pods = append(drivers, d), append(pods, pod)
	}
	s.leavesNothing(t, pods, drivers, func() {
		for i, d := range drivers {
			began := time.Now()
			must(t, d.Stop(t.Context()))
			within(t, gone, "the kubelet deletes the driver's slices", func(ctx context.Context) error {
				devices, _, err := s.devices(ctx, d.Config.Name)
				if err == nil && (len(devices) > 0 || time.Since(began) < away) {
					err = fmt.Errorf("there are %d devices after %s", len(devices), time.Since(began).Round(time.Second))
				}
				return err
			})
			must(t, d.Start(t.Context()))
			_, held := s.held(t, pods[i])
			s.shows(t, soon, pods[i].Name, "dra-healthy", map[string]string{"driver": d.Config.Name, "pool": s.node.Name(), "device": held[0]})
		}
	})
}

func kubeletRestartLeavesNothing(t *testing.T, s *suite) {
	d, pod := s.tenant(t)
	s.leavesNothing(t, []*corev1.Pod{pod}, []*realnode.Driver{d}, func() {
		must(t, s.node.KillKubelet())
		must(t, s.node.StartKubelet(t.Context()))
		must(t, d.WaitRegistered(t.Context()))
		s.awaitDevices(t, d.Config.Name, 2)
		_, held := s.held(t, pod)
		s.shows(t, soon, pod.Name, "dra-healthy", map[string]string{"driver": d.Config.Name, "pool": s.node.Name(), "device": held[0]})
	})
}

package kubelet

// This file is what maintenance does to a node that works: its drivers are restarted
// one after the other, and its kubelet is. Whatever is thought of their devices
// meanwhile, nothing of it stays.

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/fakedriver"
	"github.com/sickbay-dev/sickbay/tests/realnode"
)

// ownWindows are the settings of Sickbay in these tests: its own, all that could lead to a
// mark. Only how long health that is back has to last before a case is closed is shorter,
// which marks nothing.
func ownWindows() map[string]string {
	return map[string]string{"SICKBAY_HYSTERESIS": "10s", "SICKBAY_PROBE_NAMESPACE": ""}
}

// settled bounds the time until nothing is left of a restart: what a case looks at
// again after a while, its health that has to last.
const settled = 90 * time.Second

// restarts restarts two drivers, one after the other, and then the kubelet, under the
// product's own windows, and lets no mark ever be there.
func (s *suite) restarts(t *testing.T) {
	var drivers []*realnode.Driver
	var pods []*corev1.Pod
	for range 2 {
		d, pod := s.tenant(t)
		drivers, pods = append(drivers, d), append(pods, pod)
	}
	marks := s.watchMarks(t)
	t.Run("drivers that are restarted one after the other leave every device as it was", func(t *testing.T) {
		s.leavesNothing(t, pods, drivers, func() {
			for i, d := range drivers {
				s.restartDriver(t, d, pods[i])
			}
		})
		marks.none(t)
	})
	t.Run("a kubelet that restarts leaves every device as it was", func(t *testing.T) {
		s.leavesNothing(t, pods, drivers, func() {
			must(t, s.node.KillKubelet())
			must(t, s.node.StartKubelet(t.Context()))
			for i, d := range drivers {
				must(t, d.WaitRegistered(t.Context()))
				s.awaitDevices(t, d.Config.Name, 2)
				s.saysHealthy(t, d, pods[i])
			}
		})
		marks.none(t)
	})
	// What is never there is only worth something said by somebody who would have seen it.
	_, held := s.held(t, pods[0])
	must(t, drivers[0].Xid(t.Context(), held[0], 79))
	within(t, soon, "a mark that is made is seen", func(context.Context) error {
		if seen := marks.seen(); !slices.Contains(seen, s.key(t, drivers[0].Config.Name, held[0]).String()) {
			return fmt.Errorf("seen are %v", seen)
		}
		return nil
	})
}

// restartDriver has a driver away until the kubelet has deleted its slices and Sickbay
// suspects the device that a Pod has of it.
func (s *suite) restartDriver(t *testing.T, d *realnode.Driver, pod *corev1.Pod) {
	t.Helper()
	_, held := s.held(t, pod)
	key := s.key(t, d.Config.Name, held[0])
	must(t, d.Stop(t.Context()))
	within(t, gone, "the kubelet deletes the driver's slices, and its device is a suspect", func(ctx context.Context) error {
		devices, _, err := s.devices(ctx, d.Config.Name)
		if err == nil && len(devices) > 0 {
			err = fmt.Errorf("there are %d devices", len(devices))
		}
		if err != nil {
			return err
		}
		state, err := s.sickbay.cases.State(ctx, key)
		if err == nil && state.Case.Phase != quarantine.PhaseSuspect {
			err = fmt.Errorf("its case is %s", state.Case.Phase)
		}
		return err
	})
	must(t, d.Start(t.Context()))
	s.saysHealthy(t, d, pod)
}

func (s *suite) saysHealthy(t *testing.T, d *realnode.Driver, pod *corev1.Pod) {
	t.Helper()
	_, held := s.held(t, pod)
	s.shows(t, soon, pod.Name, "dra-healthy", map[string]string{"driver": d.Config.Name, "pool": s.node.Name(), "device": held[0]})
}

// marksWatch notes every DeviceTaintRule that is ever there.
type marksWatch struct {
	mu sync.Mutex
	// found are the devices of those that were seen, ended why there was no more to see.
	found []string
	ended error
}

// watchMarks watches from now on until the test ends.
func (s *suite) watchMarks(t *testing.T) *marksWatch {
	t.Helper()
	config := s.stack.RESTConfig()
	capabilities, err := kube.Discover(t.Context(), discovery.NewDiscoveryClientForConfigOrDie(config))
	must(t, err)
	rules := dynamic.NewForConfigOrDie(config).Resource(capabilities.TaintRules)
	list, err := rules.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(list.Items) > 0 {
		t.Fatalf("there are %d DeviceTaintRules before anything happened", len(list.Items))
	}
	// It outlives what the tests wait for many times.
	limit := int64((time.Hour).Seconds())
	w, err := rules.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &limit})
	must(t, err)
	m, done := &marksWatch{}, make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			m.note(e)
		}
		m.note(watch.Event{Type: watch.Error})
	}()
	t.Cleanup(func() {
		w.Stop()
		<-done
	})
	return m
}

func (m *marksWatch) note(e watch.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rule, ok := e.Object.(*unstructured.Unstructured)
	if !ok || e.Type == watch.Error {
		m.ended = fmt.Errorf("the watch ended: %s %v", e.Type, e.Object)
		return
	}
	mark, _ := kube.ReadMark(rule)
	m.found = append(m.found, mark.Device.String())
}

// seen are the devices that had a rule, and what isn't a device's.
func (m *marksWatch) seen() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.found)
}

// none fails the test if any rule was ever there, or the watch can't tell.
func (m *marksWatch) none(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil || len(m.found) > 0 {
		t.Errorf("DeviceTaintRules of %v were there (%v), want none at any time", m.found, m.ended)
	}
}

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
	s.saysHealthy(t, d, pod)
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
		for _, d := range drivers {
			for _, name := range []string{"gpu-0", "gpu-1"} {
				key := s.key(t, d.Config.Name, name)
				// A case that is over may have its workflow begin anew, to remember it.
				if running, failed := s.sickbay.cases.Running(ctx, key); running || failed != nil {
					err = errors.Join(err, fmt.Errorf("%s has a case, or nobody can tell: %w", key, failed))
				}
			}
		}
		return err
	})
	for _, check := range checks {
		check()
	}
}

package starter

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// metrics are what the starter counts; pkg/telemetry says what each is.
type metrics struct {
	signals    *prometheus.CounterVec
	duplicates prometheus.Counter
	retries    *prometheus.CounterVec
	noted      *prometheus.CounterVec
	pokes      *prometheus.CounterVec
	delay      prometheus.Observer
	leading    prometheus.Gauge
	watching   *prometheus.GaugeVec

	collectors []prometheus.Collector
}

func newMetrics() *metrics {
	duplicates, delay, leading := telemetry.DuplicatesDropped.NewCounter(), telemetry.SignalDelay.NewHistogram(), telemetry.Leading.NewGauge()
	m := &metrics{
		signals: telemetry.Signals.NewCounter(), duplicates: duplicates.WithLabelValues(), retries: telemetry.SendRetries.NewCounter(),
		noted: telemetry.NotedFaults.NewCounter(), pokes: telemetry.Pokes.NewCounter(), delay: delay.WithLabelValues(), leading: leading.WithLabelValues(),
		watching: telemetry.WatchCurrent.NewGauge(),
	}
	m.collectors = []prometheus.Collector{m.signals, duplicates, m.retries, m.noted, m.pokes, delay, leading, m.watching}
	return m
}

// register makes the metrics visible, with those that are read off the starter
// when they are asked for.
func (m *metrics) register(r prometheus.Registerer, s *Starter) error {
	t := s.tracker
	var errs []error
	for _, c := range append(m.collectors,
		telemetry.QueueDepth.Value(s.depth),
		telemetry.WideTaintRules.Value(func() float64 { return float64(t.wideRules()) }),
		telemetry.WatchAge.Read(s.eyes.ages),
		telemetry.OpenCases.Read(s.census.read),
		telemetry.OpenIncidents.Read(t.openIncidents),
		telemetry.HeldDevices.Read(t.heldDevices),
		telemetry.UnmappedFaults.Read(counted(func() map[string]int {
			counts := map[string]int{}
			for _, u := range t.unmappedFaults() {
				counts[string(u.Reason)]++
			}
			return counts
		})),
		telemetry.UnmonitoredDevices.Read(counted(t.coverage)),
		telemetry.UnseenDevices.Read(counted(t.unseenDevices)),
		telemetry.ListedDevices.Read(counted(t.listedDevices)),
		telemetry.ReportedDevices.Read(t.reportedDevices),
		telemetry.Blind.Read(func(emit func(float64, ...string)) {
			for _, why := range s.cantSee() {
				emit(1, why)
			}
		}),
		telemetry.NodesOut.Read(counted(func() map[string]int { count, _ := t.outNodes(); return named(count) })),
		telemetry.NodeOutTime.Read(lasting(func() map[string]time.Duration { _, longest := t.outNodes(); return named(longest) })),
		telemetry.StaleDevices.Read(func(emit func(float64, ...string)) {
			_, stale := t.evidenceAges()
			for driver, of := range stale {
				for why, n := range of {
					emit(float64(n), driver, string(why))
				}
			}
		}),
		telemetry.EvidenceAge.Read(lasting(func() map[string]time.Duration { oldest, _ := t.evidenceAges(); return oldest })),
		telemetry.UnpreparedClaims.Read(counted(func() map[string]int { count, _ := t.unpreparedClaims(); return count })),
		telemetry.UnpreparedTime.Read(lasting(func() map[string]time.Duration { _, longest := t.unpreparedClaims(); return longest })),
	) {
		if err := r.Register(c); err != nil {
			errs = append(errs, fmt.Errorf("register the starter's metrics: %w", err))
		}
	}
	return errors.Join(errs...)
}

// counted reads a gauge with one label.
func counted(count func() map[string]int) func(func(float64, ...string)) {
	return func(emit func(float64, ...string)) {
		for label, n := range count() {
			emit(float64(n), label)
		}
	}
}

// lasting reads a gauge of times with one label, in seconds.
func lasting(measure func() map[string]time.Duration) func(func(float64, ...string)) {
	return func(emit func(float64, ...string)) {
		for label, d := range measure() {
			emit(d.Seconds(), label)
		}
	}
}

// named gives the verdicts on nodes as labels.
func named[V any](of map[device.NodeVerdict]V) map[string]V {
	labels := map[string]V{}
	for verdict, v := range of {
		labels[string(verdict)] = v
	}
	return labels
}

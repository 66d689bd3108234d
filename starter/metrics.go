package starter

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the starter counts. None has a device or node label: their
// number must not grow with the fleet.
type metrics struct {
	signals    *prometheus.CounterVec
	duplicates prometheus.Counter
	retries    *prometheus.CounterVec
	noted      *prometheus.CounterVec
	delay      prometheus.Histogram
	leading    prometheus.Gauge
	watching   *prometheus.GaugeVec
}

func newMetrics() *metrics {
	return &metrics{
		signals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sickbay_starter_signals_total",
			Help: "Signals accepted by Temporal, by what they carried and whether they may start a case (open) or not (tell).",
		}, []string{"kind", "via"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sickbay_starter_duplicates_dropped_total",
			Help: "Readings dropped because they said what was known already.",
		}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sickbay_starter_send_retries_total",
			Help: "Signals that weren't accepted and are tried again: Temporal was unavailable, or refused them.",
		}, []string{"why"}),
		noted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sickbay_noted_faults_total",
			Help: "Unhealthy readings that the catalogue doesn't lay at the device's door, by reason and action.",
		}, []string{"reason", "action"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sickbay_starter_signal_delay_seconds",
			Help:    "Time from the arrival of a Pod's event to the acceptance of the signal about it.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sickbay_starter_leading",
			Help: "1 while this starter is the one that sends.",
		}),
		watching: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sickbay_starter_watch_current",
			Help: "1 while a resource is listed and watched without error.",
		}, []string{"resource"}),
	}
}

// register makes the metrics visible, with those that are read off the tracker
// when they are asked for.
func (m *metrics) register(r prometheus.Registerer, t *tracker, depth func() float64) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		m.signals, m.duplicates, m.retries, m.noted, m.delay, m.leading, m.watching,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sickbay_starter_queue_depth",
			Help: "Devices about which something waits to be sent.",
		}, depth),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sickbay_foreign_wide_taint_rules",
			Help: "Device taint rules of others that select devices across pools.",
		}, func() float64 { return float64(t.wideRules()) }),
		&gauges{
			desc: prometheus.NewDesc("sickbay_unmapped_faults",
				"Health entries that aren't Healthy and lead to no single device.", []string{"reason"}, nil),
			count: func() map[string]int {
				counts := map[string]int{}
				for _, u := range t.unmappedFaults() {
					counts[string(u.Reason)]++
				}
				return counts
			},
		},
		&gauges{
			desc: prometheus.NewDesc("sickbay_unmonitored_devices",
				"Devices in use whose driver never reported any health on their node.", []string{"driver"}, nil),
			count: t.coverage,
		},
	} {
		if err := r.Register(c); err != nil {
			errs = append(errs, fmt.Errorf("register the starter's metrics: %w", err))
		}
	}
	return errors.Join(errs...)
}

// gauges is a gauge with one label that is counted when it is asked for.
type gauges struct {
	desc  *prometheus.Desc
	count func() map[string]int
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	for label, n := range g.count() {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), label)
	}
}

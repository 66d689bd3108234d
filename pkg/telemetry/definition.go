package telemetry

import (
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind is what a metric is.
type Kind string

const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Process is a process that has a metric.
type Process string

const (
	Starter Process = "starter"
	Worker  Process = "worker"
)

// Label is a label of a metric.
type Label struct {
	Name string
	// Values says what it can hold. Each label is bounded by something that doesn't
	// grow with the number of devices.
	Values string
}

// Metric is the definition of a metric.
type Metric struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []Label
	// Buckets are a histogram's upper bounds, in the unit that its name ends with.
	Buckets []float64
	Has     []Process
	// fixed are the labels whose values are known when a collector is made.
	fixed prometheus.Labels
}

// With returns the metric with some of its labels fixed.
func (m Metric) With(fixed prometheus.Labels) Metric {
	if m.fixed = maps.Clone(m.fixed); m.fixed == nil {
		m.fixed = prometheus.Labels{}
	}
	maps.Copy(m.fixed, fixed)
	return m
}

// names are the labels that an observation gives values to.
func (m Metric) names() []string {
	var names []string
	for _, l := range m.Labels {
		if _, fixed := m.fixed[l.Name]; !fixed {
			names = append(names, l.Name)
		}
	}
	return names
}

// must stops a program that makes of a metric what it isn't defined as.
func (m Metric) must(kind Kind) {
	if m.Kind != kind {
		panic(fmt.Sprintf("metric %s is a %s and is used as a %s", m.Name, m.Kind, kind))
	}
}

// NewCounter makes the collector of a counter.
func (m Metric) NewCounter() *prometheus.CounterVec {
	m.must(Counter)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help, ConstLabels: m.fixed}, m.names())
}

// NewGauge makes the collector of a gauge.
func (m Metric) NewGauge() *prometheus.GaugeVec {
	m.must(Gauge)
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help, ConstLabels: m.fixed}, m.names())
}

// NewHistogram makes the collector of a histogram.
func (m Metric) NewHistogram() *prometheus.HistogramVec {
	m.must(Histogram)
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, ConstLabels: m.fixed, Buckets: m.Buckets}, m.names())
}

// Read makes the collector of a gauge that is read when it is asked for: read is
// given a function that takes a value and the values of the labels.
func (m Metric) Read(read func(emit func(value float64, labels ...string))) prometheus.Collector {
	m.must(Gauge)
	return &reader{desc: prometheus.NewDesc(m.Name, m.Help, m.names(), m.fixed), read: read}
}

type reader struct {
	desc *prometheus.Desc
	read func(emit func(value float64, labels ...string))
}

// Describe implements prometheus.Collector.
func (r *reader) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc }

// Collect implements prometheus.Collector.
func (r *reader) Collect(ch chan<- prometheus.Metric) {
	r.read(func(value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, value, labels...)
	})
}

// Value makes the collector of a gauge without labels that is read when it is
// asked for.
func (m Metric) Value(read func() float64) prometheus.Collector {
	return m.Read(func(emit func(float64, ...string)) { emit(read()) })
}

// In tells whether a process has the metric.
func (m Metric) In(p Process) bool { return slices.Contains(m.Has, p) }

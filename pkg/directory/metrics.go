package directory

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// Metrics are what a writer counts. A nil one counts nothing.
type Metrics struct {
	writes      *prometheus.CounterVec
	differences *prometheus.CounterVec
	lost        prometheus.Counter
	errors      prometheus.Counter
	overflows   prometheus.Counter
}

// NewMetrics makes the metrics of one field's writer visible. waiting and away
// read them off the writer.
func NewMetrics(registerer prometheus.Registerer, field Field, writer func() *Writer) (*Metrics, error) {
	of := prometheus.Labels{"field": string(field)}
	lost, failed, overflows := telemetry.DirectoryLostShards.With(of).NewCounter(), telemetry.DirectoryErrors.With(of).NewCounter(), telemetry.DirectoryOverflows.With(of).NewCounter()
	m := &Metrics{
		writes: telemetry.DirectoryWrites.With(of).NewCounter(), differences: telemetry.DirectoryDifferences.With(of).NewCounter(),
		lost: lost.WithLabelValues(), errors: failed.WithLabelValues(), overflows: overflows.WithLabelValues(),
	}
	asked := func(read func(*Writer) float64) func() float64 {
		return func() float64 {
			if w := writer(); w != nil {
				return read(w)
			}
			return 0
		}
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.writes, m.differences, lost, failed, overflows,
		telemetry.DirectoryWaiting.With(of).Value(asked(func(w *Writer) float64 {
			devices, _ := w.Waiting()
			return float64(devices)
		})),
		telemetry.DirectoryLag.With(of).Value(asked(func(w *Writer) float64 { return w.Lag().Seconds() })),
		telemetry.DirectoryCurrent.With(of).Value(asked(func(w *Writer) float64 {
			if w.Err() != nil {
				return 0
			}
			return 1
		})),
	} {
		errs = append(errs, registerer.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *Metrics) settled(why string, r Report) {
	if m == nil {
		return
	}
	if why == "compare" {
		m.differences.WithLabelValues("missing").Add(float64(r.Added))
		m.differences.WithLabelValues("different").Add(float64(r.Changed))
		m.differences.WithLabelValues("nobodys").Add(float64(r.Removed))
		return
	}
	m.writes.WithLabelValues("applied").Add(float64(r.Differences()))
	m.writes.WithLabelValues("conflict").Add(float64(r.Conflicts))
	m.writes.WithLabelValues("fenced").Add(float64(r.Fenced))
	m.writes.WithLabelValues("unknown").Add(float64(r.Unknown))
}

func (m *Metrics) lostShards(n int) {
	if m != nil {
		m.lost.Add(float64(n))
	}
}

func (m *Metrics) failed() {
	if m != nil {
		m.errors.Inc()
	}
}

func (m *Metrics) forgotten() {
	if m != nil {
		m.overflows.Inc()
	}
}

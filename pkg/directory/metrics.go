package directory

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
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
	labels := prometheus.Labels{"field": string(field)}
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sickbay_directory_writes_total", ConstLabels: labels,
			Help: "Writes into the directory that followed a change, by what became of them.",
		}, []string{"outcome"}),
		differences: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sickbay_directory_differences_total", ConstLabels: labels,
			Help: "Entries that a comparison with cluster and cases found wrong and repaired, by what was wrong with them.",
		}, []string{"kind"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sickbay_directory_lost_shards_total", ConstLabels: labels,
			Help: "Shards that were found empty, new, or restored from older data, and rebuilt.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sickbay_directory_errors_total", ConstLabels: labels,
			Help: "Rounds of writing that failed, because Redis was away or something wasn't known.",
		}),
		overflows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sickbay_directory_overflows_total", ConstLabels: labels,
			Help: "Times that more devices waited than are remembered, so that everything is compared instead.",
		}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.writes, m.differences, m.lost, m.errors, m.overflows,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sickbay_directory_waiting", ConstLabels: labels,
			Help: "Devices whose entries wait to be written.",
		}, func() float64 {
			w := writer()
			if w == nil {
				return 0
			}
			devices, _ := w.Waiting()
			return float64(devices)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sickbay_directory_current", ConstLabels: labels,
			Help: "1 while the directory is written without error.",
		}, func() float64 {
			if w := writer(); w == nil || w.Err() != nil {
				return 0
			}
			return 1
		}),
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

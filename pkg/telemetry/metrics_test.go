package telemetry_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

var update = flag.Bool("update", false, "write the tables in docs/metrics.md anew")

const (
	tablesTop = "<!-- The tables are made from pkg/telemetry: go test ./pkg/telemetry -update -->\n\n"
	tablesEnd = "\n<!-- end of the tables -->\n"
)

func TestTheMetricsInTheDocsAreThoseThatAreDefined(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "metrics.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, top := strings.Cut(string(page), tablesTop)
	_, after, end := strings.Cut(rest, tablesEnd)
	if !top || !end {
		t.Fatalf("%s lacks the comments between which its tables stand", path)
	}
	want := before + tablesTop + telemetry.Page() + tablesEnd + after
	if string(page) == want {
		return
	}
	if !*update {
		t.Fatalf("the tables of %s aren't what pkg/telemetry defines; write them anew with: go test ./pkg/telemetry -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What is defined and in no section would be missing in the docs, and in the test of
// what the processes show.
func TestEachMetricIsInASection(t *testing.T) {
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, section := range telemetry.Sections() {
		for _, m := range section.Metrics {
			listed[m.Name] = true
		}
	}
	defined := regexp.MustCompile(`Name: "(sickbay_[a-z_]+)"`).FindAllSubmatch(source, -1)
	if len(defined) == 0 {
		t.Fatal("metrics.go defines none")
	}
	for _, name := range defined {
		if !listed[string(name[1])] {
			t.Errorf("%s is in no section", name[1])
		}
	}
}

// Names and labels follow Prometheus' conventions, no label names a device, a Pod
// or a node, and each metric can be collected as what it is defined as.
func TestEachMetricIsWellFormed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	seen := map[string]bool{}
	for _, section := range telemetry.Sections() {
		for _, m := range section.Metrics {
			if seen[m.Name] {
				t.Errorf("%s is defined twice", m.Name)
			}
			seen[m.Name] = true
			if !regexp.MustCompile(`^sickbay_[a-z]+(_[a-z]+)*$`).MatchString(m.Name) {
				t.Errorf("%s isn't a name of ours", m.Name)
			}
			if counts := strings.HasSuffix(m.Name, "_total"); counts != (m.Kind == telemetry.Counter) {
				t.Errorf("%s is a %s: _total is for counters, and for all of them", m.Name, m.Kind)
			}
			if timed := strings.HasSuffix(m.Name, "_seconds"); m.Kind == telemetry.Histogram && (!timed || len(m.Buckets) == 0) {
				t.Errorf("%s: a histogram needs a unit and buckets", m.Name)
			}
			if !strings.HasSuffix(m.Help, ".") || len(m.Has) == 0 {
				t.Errorf("%s: help %q, in %v", m.Name, m.Help, m.Has)
			}
			for _, l := range m.Labels {
				if regexp.MustCompile(`^(device|pod|node|uid|key|claim|namespace|epoch)$`).MatchString(l.Name) || l.Values == "" {
					t.Errorf("%s: label %q (%q): want one that is bounded, and said by what", m.Name, l.Name, l.Values)
				}
			}
			var collector prometheus.Collector
			switch m.Kind {
			case telemetry.Counter:
				collector = m.NewCounter()
			case telemetry.Gauge:
				collector = m.NewGauge()
			case telemetry.Histogram:
				collector = m.NewHistogram()
			}
			if err := registry.Register(collector); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}

func TestAMetricIsOnlyUsedAsWhatItIsDefinedAs(t *testing.T) {
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "sickbay_starter_leading is a gauge and is used as a counter") {
			t.Errorf("said %q", said)
		}
	}()
	telemetry.Leading.NewCounter()
}

func TestAFixedLabelIsNotAskedForAgain(t *testing.T) {
	registry := prometheus.NewRegistry()
	writes := telemetry.DirectoryWrites.With(prometheus.Labels{"field": "seen"}).NewCounter()
	registry.MustRegister(writes)
	writes.WithLabelValues("applied").Inc()
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()[0].GetLabel()) != 2 {
		t.Fatalf("gathered %v, %v", families, err)
	}
	if len(telemetry.DirectoryWrites.Labels) != 2 {
		t.Error("fixing a label changed the definition")
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// usage is what a process has used so far, from /proc.
type usage struct {
	// resident is what it has in memory now, peak the most that it ever had.
	resident, peak int64
	cpu            time.Duration
}

// tick is the unit of CPU times in /proc: USER_HZ, 100 on every architecture that Go
// runs on.
const tick = 10 * time.Millisecond

func usageOf(pid int) (usage, error) {
	var u usage
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch {
		case err != nil:
		case name == "VmRSS":
			u.resident = kilobytes << 10
		case name == "VmHWM":
			u.peak = kilobytes << 10
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The program's name, in parentheses, can hold anything. After it come the state
	// as field 3, and user and system time as fields 14 and 15.
	values := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(values) < 13 || u.resident == 0 {
		return u, fmt.Errorf("/proc/%d tells nothing: the process has ended", pid)
	}
	for _, text := range values[11:13] {
		ticks, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		u.cpu += time.Duration(ticks) * tick
	}
	return u, nil
}

// page is what a process says at /metrics.
type page struct {
	families map[string]*dto.MetricFamily
	// series is how many lines of values there are.
	series int
}

func scrape(ctx context.Context, address string) (page, error) {
	body, err := get(ctx, "http://"+address+"/metrics")
	if err != nil {
		return page{}, err
	}
	var p page
	for line := range bytes.Lines(body) {
		if len(bytes.TrimSpace(line)) > 0 && line[0] != '#' {
			p.series++
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	p.families, err = parser.TextToMetricFamilies(bytes.NewReader(body))
	return p, err
}

func get(ctx context.Context, url string) (body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	body, err = io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return body, err
}

// by sums a metric up by the values of some of its labels, joined by spaces.
func (p page) by(name string, labels ...string) map[string]float64 {
	sums := map[string]float64{}
	for _, m := range p.families[name].GetMetric() {
		var values []string
		for _, label := range labels {
			for _, pair := range m.GetLabel() {
				if pair.GetName() == label {
					values = append(values, pair.GetValue())
				}
			}
		}
		sums[strings.Join(values, " ")] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
	}
	return sums
}

func (p page) sum(name string) float64 { return p.by(name)[""] }

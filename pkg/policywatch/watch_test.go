package policywatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// site is a watch, to which is told what an API server would say.
type site struct {
	*Watch
	t       *testing.T
	log     *bytes.Buffer
	version int
}

// newSite has an environment that enforces, with a grace of 7 minutes.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, log: &bytes.Buffer{}}
	base := policy.DefaultBase()
	base.Quarantine.Mode, base.Quarantine.Grace = quarantine.ModeEnforce, 7*time.Minute
	var err error
	s.Watch, err = New(Options{
		Kubernetes: kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://127.0.0.1:1"}), Namespace: "sickbay", Base: base,
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) object(text string) *corev1.ConfigMap {
	s.version++
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sickbay", Name: policy.ConfigMapName, ResourceVersion: fmt.Sprint(s.version)},
		Data:       map[string]string{policy.ConfigMapKey: "apiVersion: sickbay.dev/v1\nkind: Policy\n" + text},
	}
}

// says is a step in which the ConfigMap gets a text.
func says(text string) func(*site) { return func(s *site) { s.seen(s.object(text)) } }

func deleted(s *site) { s.gone() }
func empty(s *site)   { s.listed(nil) }

func forbidden(s *site) {
	s.failed(s.t.Context(), "list", apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, policy.ConfigMapName, errors.New("no")))
}

func away(s *site) { s.failed(s.t.Context(), "list", errors.New("connection refused")) }

// What somebody writes, deletes or takes away never ends in looser marks than were
// decided, and never ends a process. Each row is what happens, one after another.
func TestWhateverBecomesOfThePolicyTheLastGoodOneHolds(t *testing.T) {
	const good, observing, wrong = "mode: enforce\nquarantine: {grace: 3m}", "mode: observe", "mode: on"
	for name, row := range map[string]struct {
		steps []func(*site)
		state State
		mode  quarantine.Mode
		grace time.Duration
		said  string
	}{
		"nothing is known yet":                  {nil, Waiting, "observe", 7 * time.Minute, ""},
		"the API server is away from the start": {[]func(*site){away}, Waiting, "observe", 7 * time.Minute, "can't be read"},
		"there is none":                         {[]func(*site){empty}, None, "enforce", 7 * time.Minute, "the environment holds"},
		"a good one":                            {[]func(*site){says(good)}, Read, "enforce", 3 * time.Minute, "policy in force"},
		"one that says nothing":                 {[]func(*site){says("")}, Read, "enforce", 7 * time.Minute, "policy in force"},
		"a wrong one after a good one":          {[]func(*site){says(good), says(wrong)}, Refused, "enforce", 3 * time.Minute, "what was in force stays so"},
		"a wrong one after one that observes":   {[]func(*site){says(observing), says(wrong)}, Refused, "observe", 7 * time.Minute, "what was in force stays so"},
		"a wrong one at the start":              {[]func(*site){says(wrong)}, Refused, "observe", 7 * time.Minute, "nothing is enforced until it is mended"},
		"and mended":                            {[]func(*site){says(wrong), says(good)}, Read, "enforce", 3 * time.Minute, "policy in force"},
		"a wrong one where there was none":      {[]func(*site){empty, says(wrong)}, Refused, "enforce", 7 * time.Minute, "what was in force stays so"},
		"deleted":                               {[]func(*site){says(good), deleted}, Deleted, "enforce", 3 * time.Minute, "was deleted"},
		"deleted, and listed anew":              {[]func(*site){says(good), deleted, empty}, Deleted, "enforce", 3 * time.Minute, "was deleted"},
		"deleted, and put back otherwise":       {[]func(*site){says(good), deleted, says(observing)}, Read, "observe", 7 * time.Minute, "policy in force"},
		"a wrong one after a good one, deleted": {[]func(*site){says(good), says(wrong), deleted}, Deleted, "enforce", 3 * time.Minute, "was deleted"},
		"a wrong one at the start, deleted":     {[]func(*site){says(wrong), deleted}, None, "enforce", 7 * time.Minute, "the environment holds"},
		"no right to read it":                   {[]func(*site){forbidden}, Unreadable, "enforce", 7 * time.Minute, "grant the service account"},
		"the right was taken away":              {[]func(*site){says(observing), forbidden}, Unreadable, "observe", 7 * time.Minute, "grant the service account"},
		"a wrong one, then no right":            {[]func(*site){says(wrong), forbidden}, Unreadable, "observe", 7 * time.Minute, "grant the service account"},
		"the API server goes away later":        {[]func(*site){says(good), away, away}, Read, "enforce", 3 * time.Minute, "tried again"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for _, step := range row.steps {
				step(s)
			}
			held := s.Current().For("gpu.example.com", nil)
			if s.Status().State != row.state || held.Mode != row.mode || held.Grace != row.grace {
				t.Errorf("%s, mode %s, grace %s; want %s, %s, %s", s.Status().State, held.Mode, held.Grace, row.state, row.mode, row.grace)
			}
			if !strings.Contains(s.log.String(), row.said) {
				t.Errorf("nothing says %q in\n%s", row.said, s.log)
			}
			soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if waits := s.Await(soon) != nil; waits != (row.state == Waiting) {
				t.Errorf("it waits for what holds: %t", waits)
			}
		})
	}
}

// The right comes back while the ConfigMap is as it was.
func TestAPolicyThatCanBeReadAgainHolds(t *testing.T) {
	s := newSite(t)
	object := s.object("mode: observe")
	s.seen(object)
	forbidden(s)
	s.listed([]corev1.ConfigMap{*object})
	if got := s.Status(); got.State != Read || got.InForce != "1" || s.Current().Enforces() {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsNoPolicyIsRefusedByItsKeys(t *testing.T) {
	for want, data := range map[string]map[string]string{
		"a ConfigMap with the keys [policy.yml]; want the key policy.yaml": {"policy.yml": "x"},
		"a ConfigMap with the keys []; want the key policy.yaml":           {},
		"a ConfigMap that has a, b beside it; want no key but policy.yaml": {"policy.yaml": "x", "a": "", "b": ""},
	} {
		if _, err := Parse(&corev1.ConfigMap{Data: data}); err == nil || err.Error() != want || !errors.Is(err, policy.ErrPolicy) {
			t.Errorf("%v: %v, want %q", data, err, want)
		}
	}
}

// A failure that goes on is told once, and what an Event holds is no longer than it may be.
func TestWhatGoesWrongIsToldOnce(t *testing.T) {
	s := newSite(t)
	for range 50 {
		away(s)
	}
	if n := strings.Count(s.log.String(), "can't be read"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if text := message(errors.New(strings.Repeat("line 1: wrong\n", 500))); len(text) > 1024 || strings.Contains(text, "\n") {
		t.Errorf("an Event of %d bytes", len(text))
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An API server that was away for long is asked again soon after it is back: what is
// written then holds at once, and not after the pauses that grew meanwhile.
func TestAnAPIServerThatIsBackIsAskedSoon(t *testing.T) {
	s := newSite(t)
	const away = 8
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			answer.WriteHeader(http.StatusOK)
			answer.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.ConfigMap{*s.object("mode: observe")}}
		if err := json.NewEncoder(answer).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	w, err := New(Options{
		Kubernetes: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL, WrapTransport: func(there http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if calls.Add(1) <= away {
					return nil, syscall.ECONNREFUSED
				}
				return there.RoundTrip(r)
			})
		}}),
		Namespace: "sickbay", Base: s.options.Base, Log: s.options.Log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.pause = time.Millisecond
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	defer func() { stop(); <-ended }()
	if err := w.Await(ctx); err != nil || w.Status().State != Read {
		t.Errorf("%v, %+v after %d calls", err, w.Status(), calls.Load())
	}
}

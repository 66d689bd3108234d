package apiserver

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// bookmarkEvery is about how often an API server sends a bookmark (1.37,
// k8s.io/apiserver pkg/storage/cacher/cacher.go: bookmarkFrequency).
const bookmarkEvery = time.Minute

// watch streams changes until the client goes, its timeout is over, or the server
// ends. With sendInitialEvents everything that is there comes first, then a bookmark
// that says so (KEP-3157).
func (s *Server) watch(w http.ResponseWriter, r *http.Request, asked request) error {
	selector, err := selectorOf(r, asked)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	var timeout <-chan time.Time
	if text := query.Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil {
			return invalid("timeoutSeconds", text)
		}
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		timeout = timer.C
	}
	of := asked.table.GroupResource()
	var initial []*item
	var version uint64
	streamed := query.Get("sendInitialEvents") == "true"
	switch from := query.Get("resourceVersion"); {
	case streamed:
		all := s.store.list(of, selector, "", 0)
		initial, version = all.items, all.version
	case from == "" || from == "0":
		return invalid("resourceVersion", from) // nobody asks for "whatever is there, without a list"
	default:
		if version, err = strconv.ParseUint(from, 10, 64); err != nil {
			return invalid("resourceVersion", from)
		}
	}
	changes, ok := s.store.after(of, version)
	if !ok {
		return failure{http.StatusGone, metav1.StatusReasonExpired, "too old resource version: " + query.Get("resourceVersion")}
	}
	s.called("watch", asked.table.Resource, time.Now())

	out := &stream{w: w, form: formOf(r.Header.Get("Accept")), table: asked.table, selector: selector}
	w.Header().Set("Content-Type", out.form.watched())
	w.WriteHeader(http.StatusOK)
	for _, i := range initial {
		out.send("ADDED", i)
	}
	if streamed {
		out.bookmark(version, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	out.flush()
	ticker := time.NewTicker(bookmarkEvery)
	defer ticker.Stop()
	for out.err == nil {
		events, version, changed, ok := changes.next()
		if !ok {
			return nil // the client watches again, and is told that it is too late
		}
		for _, e := range events {
			if selector.Matches(e.selected) {
				out.send(e.kind, e.item)
			}
		}
		out.flush()
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ticker.C:
			out.bookmark(version, nil)
		case <-timeout:
			return nil
		case <-r.Context().Done():
			return nil
		case <-s.ended:
			return nil
		}
	}
	return nil
}

// stream writes a watch. Its first error stays: the client is gone.
type stream struct {
	w        http.ResponseWriter
	form     form
	table    *table
	selector fields.Selector
	err      error
}

func (s *stream) send(kind string, i *item) {
	if s.err != nil {
		return
	}
	one, err := s.form.one(s.table, i.protobuf)
	s.write(kind, one, err)
}

func (s *stream) bookmark(version uint64, annotations map[string]string) {
	o := s.table.empty()
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	o.SetAnnotations(annotations)
	one, err := s.form.object(s.table, o)
	s.write("BOOKMARK", one, err)
}

func (s *stream) write(kind string, one []byte, err error) {
	if err == nil {
		one, err = s.form.event(kind, one)
	}
	if err == nil {
		_, err = s.w.Write(one)
	}
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("watch %s: %w", s.table.Resource, err)
	}
}

func (s *stream) flush() {
	if flusher, ok := s.w.(http.Flusher); ok && s.err == nil {
		flusher.Flush()
	}
}

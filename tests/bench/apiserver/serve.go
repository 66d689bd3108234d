package apiserver

import (
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// compressFrom is from what size on an API server compresses its answers (1.37,
// k8s.io/apiserver pkg/endpoints/handlers/responsewriters/writers.go).
const compressFrom = 128 * 1024

// Server serves a fleet on the loopback address.
type Server struct {
	fleet     Fleet
	store     *store
	authority []byte
	address   string
	server    *http.Server
	ended     chan struct{}
	running   sync.WaitGroup

	mu    sync.Mutex
	calls []Call
}

// Call is one request that was answered, or a watch that was begun.
type Call struct {
	Verb, Resource string
	Began, Ended   time.Time
}

// Start fills a server and begins to serve, and to write what kubelets write.
func Start(fleet Fleet) (*Server, error) {
	fleet = fleet.withDefaults()
	s := &Server{fleet: fleet, store: newStore(resources()), ended: make(chan struct{})}
	if err := s.fill(); err != nil {
		return nil, err
	}
	s.store.forget()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.authority, s.address = certificate, listener.Addr().String()
	s.server = &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	s.running.Go(func() { _ = s.server.ServeTLS(listener, "", "") }) // it ends with Stop
	s.running.Go(s.trickle)
	return s, nil
}

// Stop ends the server and every watch.
func (s *Server) Stop() error {
	close(s.ended)
	err := s.server.Close()
	s.running.Wait()
	return err
}

// WriteKubeconfig writes a kubeconfig for the server.
func (s *Server) WriteKubeconfig(path string) error {
	const name = "generated"
	set := clientcmdapi.NewConfig()
	set.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + s.address, CertificateAuthorityData: s.authority}
	set.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "nobody-asks"}
	set.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	set.CurrentContext = name
	return clientcmd.WriteToFile(*set, path)
}

// Fleet is what is served.
func (s *Server) Fleet() Fleet { return s.fleet }

// Calls are the requests since a time.
func (s *Server) Calls(since time.Time) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Call
	for _, c := range s.calls {
		if !c.Began.Before(since) {
			found = append(found, c)
		}
	}
	return found
}

func (s *Server) called(verb, resource string, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, Call{verb, resource, began, time.Now()})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.answer(w, r); err != nil {
		var failed failure
		if !errors.As(err, &failed) {
			failed = failure{http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error()}
		}
		failed.write(w)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) error {
	switch r.URL.Path {
	case "/version":
		return writeJSON(w, version.Info{Major: "1", Minor: "37", GitVersion: s.fleet.Version})
	case "/apis/resource.k8s.io/v1":
		return writeJSON(w, s.served(schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}))
	}
	asked, ok := s.parse(r.URL.Path)
	if !ok {
		return failure{http.StatusNotFound, metav1.StatusReasonNotFound, "the generated fleet has no " + r.URL.Path}
	}
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && query.Get("watch") != "" && query.Get("watch") != "false":
		return s.watch(w, r, asked)
	case r.Method == http.MethodGet && asked.name != "":
		return s.get(w, r, asked)
	case r.Method == http.MethodGet:
		return s.list(w, r, asked)
	case asked.table.GroupResource() == leases && (r.Method == http.MethodPost || r.Method == http.MethodPut):
		return s.writeLease(w, r, asked)
	}
	return failure{http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the generated fleet can't be written: " + r.Method + " " + r.URL.Path}
}

// request is what a path asks for.
type request struct {
	table           *table
	namespace, name string
}

// parse reads /api/v1/… and /apis/<group>/<version>/…, with or without a namespace.
func (s *Server) parse(path string) (request, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return request{}, false
	}
	var asked request
	if parts[0] == "namespaces" && len(parts) > 2 {
		asked.namespace, parts = parts[1], parts[2:]
	}
	asked.table = s.store.tables[schema.GroupResource{Group: group, Resource: parts[0]}]
	if asked.table == nil || !strings.HasPrefix(path, prefix(asked.table.GroupVersion())) || len(parts) > 2 {
		return request{}, false
	}
	if len(parts) == 2 {
		asked.name = parts[1]
	}
	return asked, true
}

func prefix(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version + "/"
	}
	return "/apis/" + gv.String() + "/"
}

// served is the discovery document of a version.
func (s *Server) served(gv schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, t := range s.store.tables {
		if t.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: t.Resource, Kind: t.kind, Namespaced: t.namespaced, Verbs: metav1.Verbs{"get", "list", "watch"},
			})
		}
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, asked request) error {
	began := time.Now()
	defer func() { s.called("get", asked.table.Resource, began) }()
	o, err := s.store.read(asked.table.GroupResource(), keyOf(asked.namespace, asked.name))
	if err == nil && o == nil {
		o = s.nodeLease(asked)
	}
	if err != nil {
		return err
	}
	if o == nil {
		return failure{http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", asked.table.Resource, asked.name)}
	}
	return writeObject(w, r, asked.table, o)
}

func writeObject(w http.ResponseWriter, r *http.Request, t *table, o object) error {
	f := formOf(r.Header.Get("Accept"))
	body, err := f.object(t, o)
	if err != nil {
		return err
	}
	return write(w, r, f.media, body)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, asked request) error {
	began := time.Now()
	defer func() { s.called("list", asked.table.Resource, began) }()
	selector, err := selectorOf(r, asked)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	limit := 0
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil {
			return invalid("limit", text)
		}
	}
	after, err := base64.RawURLEncoding.DecodeString(query.Get("continue"))
	if err != nil {
		return invalid("continue", query.Get("continue"))
	}
	f := formOf(r.Header.Get("Accept"))
	body, err := f.list(asked.table, s.store.list(asked.table.GroupResource(), selector, string(after), limit))
	if err != nil {
		return err
	}
	return write(w, r, f.media, body)
}

func continueAfter(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// selectorOf is what a list or watch is narrowed to. Labels are nobody's question.
func selectorOf(r *http.Request, asked request) (fields.Selector, error) {
	text := r.URL.Query().Get("fieldSelector")
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return nil, invalid("fieldSelector", text)
	}
	if asked.namespace != "" {
		selector = fields.AndSelectors(selector, fields.OneTermEqualSelector("metadata.namespace", asked.namespace))
	}
	return selector, nil
}

// write answers, compressed where an API server would.
func write(w http.ResponseWriter, r *http.Request, media string, body []byte) error {
	w.Header().Set("Content-Type", media)
	if len(body) < compressFrom || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, err := w.Write(body)
		return ignoreGone(err)
	}
	w.Header().Set("Content-Encoding", "gzip")
	compressed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	_, err = compressed.Write(body)
	return ignoreGone(errors.Join(err, compressed.Close()))
}

// ignoreGone drops the error of writing to a client: it hung up, and nobody is left
// to be told.
func ignoreGone(error) error { return nil }

func writeJSON(w http.ResponseWriter, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", mediaJSON)
	_, err = w.Write(body)
	return ignoreGone(err)
}

// failure is an error as the API tells it.
type failure struct {
	code   int
	reason metav1.StatusReason
	text   string
}

func (f failure) Error() string { return f.text }

func invalid(parameter, value string) failure {
	return failure{http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("%s=%q can't be read", parameter, value)}
}

func (f failure) status() *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(f.code), Reason: f.reason, Message: f.text,
	}
}

func (f failure) write(w http.ResponseWriter) {
	// A Status of plain fields can be written.
	body, _ := json.Marshal(f.status())
	w.Header().Set("Content-Type", mediaJSON)
	w.WriteHeader(f.code)
	_, _ = w.Write(body) // see ignoreGone
}

package fakeplugin

// This file is about one run of the plugin process: its resources, the watch
// for the kubelet's socket, and the HTTP control. The control has one POST for
// each thing that a test can make happen, and one GET for what is so.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// State is what a plugin says of itself.
type State struct {
	PID       int        `json:"pid"`
	Resources []Resource `json:"resources"` // by name
}

type deviceRequest struct {
	Resource string `json:"resource"`
	ID       string `json:"id,omitempty"`
	Health   string `json:"health,omitempty"`
	On       bool   `json:"on,omitempty"`
}

type plugin struct {
	cfg       Config
	log       *slog.Logger
	resources map[string]*resource
}

// Run is a plugin process from start to end. It returns when ctx ends, having
// removed its sockets, or with the reason why it could not start. A kubelet
// that is not there yet is no such reason.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	for _, dir := range []string{cfg.Dir, cfg.StateDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
	}
	p := &plugin{cfg: cfg, log: log, resources: map[string]*resource{}}
	remembered := map[string]map[string]string{}
	if cfg.Memory {
		if err := p.load(&remembered); err != nil {
			return err
		}
	}
	for name, n := range cfg.Resources {
		devices := remembered[name]
		if devices == nil {
			devices = map[string]string{}
			for i := range n {
				devices[fmt.Sprintf("GPU-%d", i)] = api.Healthy
			}
		}
		p.resources[name] = newResource(cfg, name, devices, log)
	}
	defer func() {
		for _, r := range p.resources {
			r.stop()
		}
	}()

	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", cfg.Dir, err)
	}
	defer watch.Close()
	if err := watch.Add(cfg.Dir); err != nil {
		return fmt.Errorf("watch %s: %w", cfg.Dir, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.follow(ctx, watch) })
	defer wg.Wait()
	defer cancel()
	return p.serve(ctx)
}

// follow registers all resources now and whenever the kubelet's socket is
// created, each where it is wanted.
func (p *plugin) follow(ctx context.Context, watch *fsnotify.Watcher) {
	if p.cfg.Register {
		p.registerAll(ctx)
	}
	kubelet := filepath.Join(p.cfg.Dir, "kubelet.sock")
	for {
		select {
		case e := <-watch.Events:
			if p.cfg.Reregister && e.Name == kubelet && e.Has(fsnotify.Create) {
				p.registerAll(ctx)
			}
		case err := <-watch.Errors:
			p.log.Error("watch the device plugin directory", "error", err)
		case <-ctx.Done():
			return
		}
	}
}

func (p *plugin) registerAll(ctx context.Context) {
	for _, name := range slices.Sorted(maps.Keys(p.resources)) {
		if err := p.resources[name].register(ctx); err != nil {
			p.log.Error("no registration", "error", err)
		}
	}
}

func (p *plugin) file() string { return filepath.Join(p.cfg.StateDir, "devices.json") }

func (p *plugin) load(v *map[string]map[string]string) error {
	data, err := os.ReadFile(p.file())
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", p.file(), err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %s: %w", p.file(), err)
	}
	return nil
}

func (p *plugin) save() error {
	v := map[string]map[string]string{}
	for name, r := range p.resources {
		v[name] = r.snapshot().Devices
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", p.file(), err)
	}
	if err := os.WriteFile(p.file()+".new", data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", p.file(), err)
	}
	if err := os.Rename(p.file()+".new", p.file()); err != nil {
		return fmt.Errorf("write %s: %w", p.file(), err)
	}
	return nil
}

// serve answers the control until ctx ends.
func (p *plugin) serve(ctx context.Context) error {
	l, err := net.Listen("tcp", p.cfg.Control)
	if err != nil {
		return fmt.Errorf("listen for control on %s: %w", p.cfg.Control, err)
	}
	srv := &http.Server{Handler: p.routes(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	if p.cfg.AddressFile != "" {
		err := os.WriteFile(p.cfg.AddressFile+".new", []byte(l.Addr().String()), 0o644)
		if err == nil {
			err = os.Rename(p.cfg.AddressFile+".new", p.cfg.AddressFile)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("write %s: %w", p.cfg.AddressFile, err), srv.Close(), <-failed)
		}
	}
	p.log.Info("plugin runs", "resources", p.cfg.Resources, "control", l.Addr().String(), "profile", p.cfg.Profile)
	select {
	case err := <-failed:
		return fmt.Errorf("serve control on %s: %w", l.Addr(), err)
	case <-ctx.Done():
		err := srv.Close()
		<-failed
		return err
	}
}

func (p *plugin) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		s := State{PID: os.Getpid()}
		for _, name := range slices.Sorted(maps.Keys(p.resources)) {
			s.Resources = append(s.Resources, p.resources[name].snapshot())
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // a reader that went away needs no answer
	})
	p.post(mux, "POST /health", func(s *Resource, r deviceRequest) error {
		if _, ok := s.Devices[r.ID]; !ok {
			return missing(s, r.ID)
		}
		s.Devices[r.ID] = r.Health
		return nil
	})
	p.post(mux, "POST /remove", func(s *Resource, r deviceRequest) error {
		if _, ok := s.Devices[r.ID]; !ok {
			return missing(s, r.ID)
		}
		delete(s.Devices, r.ID)
		return nil
	})
	p.post(mux, "POST /add", func(s *Resource, r deviceRequest) error {
		if _, ok := s.Devices[r.ID]; ok {
			return fmt.Errorf("device %q is there already", r.ID)
		}
		s.Devices[r.ID] = r.Health
		return nil
	})
	p.post(mux, "POST /silence", func(s *Resource, r deviceRequest) error {
		s.Silent = r.On
		return nil
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		for _, name := range slices.Sorted(maps.Keys(p.resources)) {
			if err := p.resources[name].register(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusUnprocessableEntity)
				return
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /crash", func(http.ResponseWriter, *http.Request) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing runs after it
	})
	return mux
}

func missing(s *Resource, id string) error {
	return fmt.Errorf("device %q: %w: the plugin has %q", id, errNoSuchDevice, slices.Sorted(maps.Keys(s.Devices)))
}

// post registers a change of one resource.
func (p *plugin) post(mux *http.ServeMux, pattern string, f func(*Resource, deviceRequest) error) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var req deviceRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, fmt.Sprintf("decode the body of %s: %v", r.URL.Path, err), http.StatusBadRequest)
			return
		}
		res, ok := p.resources[req.Resource]
		if !ok {
			http.Error(w, fmt.Sprintf("no resource %q: the plugin has %s", req.Resource, p.cfg.Resources), http.StatusNotFound)
			return
		}
		err := res.change(func(s *Resource) error { return f(s, req) })
		if err == nil {
			err = p.save()
		}
		switch {
		case errors.Is(err, errNoSuchDevice):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

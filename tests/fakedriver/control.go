package fakedriver

// This file is the HTTP control of a running driver: one POST for each thing
// that a test can make happen, and one GET for what is so. The bodies are the
// request types below; an answer other than 204 or 200 is the error as text.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

type healthRequest struct {
	Device string `json:"device"`
	Health Health `json:"health"`
}

type eventRequest struct {
	Devices []string `json:"devices"` // empty means all
	Kind    string   `json:"kind"`    // xid, gpu-lost or unmonitored
	Xid     int      `json:"xid,omitempty"`
}

type deviceRequest struct {
	Device string                    `json:"device"`
	On     bool                      `json:"on,omitempty"`
	Taints []resourceapi.DeviceTaint `json:"taints,omitempty"`
}

type settings struct {
	Silent  *bool    `json:"silent,omitempty"`
	Loss    *float64 `json:"loss,omitempty"`
	Overlap *Overlap `json:"overlap,omitempty"`
	CDI     *CDI     `json:"cdi,omitempty"`
}

// State is what a driver says of itself.
type State struct {
	Registered bool                     `json:"registered"` // the kubelet has accepted the driver
	PID        int                      `json:"pid"`
	Devices    []Device                 `json:"devices"`
	Prepared   map[string]PreparedClaim `json:"prepared"` // by claim UID
	Streams    []Stream                 `json:"streams"`
	Errors     []string                 `json:"errors"` // the last background errors
}

// serve answers the control until ctx ends.
func (d *driver) serve(ctx context.Context) error {
	l, err := net.Listen("tcp", d.cfg.Control)
	if err != nil {
		return fmt.Errorf("listen for control on %s: %w", d.cfg.Control, err)
	}
	srv := &http.Server{Handler: d.routes(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	if d.cfg.AddressFile != "" {
		if err := writeFile(d.cfg.AddressFile, []byte(l.Addr().String())); err != nil {
			return errors.Join(err, srv.Close(), <-failed)
		}
	}
	d.log.Info("driver runs", "driver", d.cfg.Name, "node", d.cfg.Node, "control", l.Addr().String(), "profile", d.cfg.Profile)
	select {
	case err := <-failed:
		return fmt.Errorf("serve control on %s: %w", l.Addr(), err)
	case <-ctx.Done():
		err := srv.Close()
		<-failed
		return err
	}
}

func (d *driver) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		s, err := d.state()
		reply(w, s, err)
	})
	handle(mux, "POST /health", func(_ context.Context, r healthRequest) (any, error) {
		return nil, d.changeHardware(false, func() error {
			dev, err := d.inv.find(r.Device)
			if err != nil {
				return err
			}
			dev.Health, dev.OwnTaint = r.Health, nil
			return nil
		})
	})
	handle(mux, "POST /event", func(_ context.Context, r eventRequest) (any, error) {
		return nil, d.changeHardware(false, func() error { return d.event(r) })
	})
	handle(mux, "POST /omit", func(_ context.Context, r deviceRequest) (any, error) {
		return nil, d.change(func() error {
			dev, err := d.inv.find(r.Device)
			if err != nil {
				return err
			}
			dev.Omitted = r.On
			return nil
		})
	})
	handle(mux, "POST /taints", func(_ context.Context, r deviceRequest) (any, error) {
		return nil, d.changeHardware(false, func() error {
			dev, err := d.inv.find(r.Device)
			if err != nil {
				return err
			}
			dev.Taints = r.Taints
			return nil
		})
	})
	handle(mux, "POST /vanish", func(_ context.Context, r deviceRequest) (any, error) {
		return nil, d.changeHardware(true, func() error { return d.inv.vanish(r.Device) })
	})
	handle(mux, "POST /add", func(_ context.Context, r Device) (any, error) {
		return nil, d.changeHardware(true, func() error { return d.inv.add(r) })
	})
	handle(mux, "POST /swap", func(_ context.Context, r deviceRequest) (any, error) {
		var swapped Device
		err := d.changeHardware(true, func() (err error) {
			swapped, err = d.inv.swap(r.Device)
			return err
		})
		return swapped, err
	})
	handle(mux, "POST /settings", func(_ context.Context, r settings) (any, error) {
		return nil, d.change(func() error { return d.set(r) })
	})
	handle(mux, "POST /resend", func(context.Context, struct{}) (any, error) {
		return nil, d.change(func() error { d.forced++; return nil })
	})
	handle(mux, "POST /close", func(context.Context, struct{}) (any, error) {
		return nil, d.change(func() error { d.closes++; return nil })
	})
	handle(mux, "POST /crash", func(context.Context, struct{}) (any, error) {
		return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
	return mux
}

// event applies a vendor's event to devices.
func (d *driver) event(r eventRequest) error {
	names := r.Devices
	if len(names) == 0 {
		for _, dev := range d.inv.Devices {
			names = append(names, dev.Name)
		}
	}
	for _, name := range names {
		dev, err := d.inv.find(name)
		if err != nil {
			return err
		}
		switch r.Kind {
		case "xid":
			dev.xid(d.cfg.Name, r.Xid, d.cfg.OwnTaints)
		case "gpu-lost":
			dev.lost(d.cfg.Name, d.cfg.OwnTaints)
		case "unmonitored":
			dev.unmonitored(d.cfg.Name, d.cfg.OwnTaints)
		default:
			return fmt.Errorf("event kind is %q: allowed are xid, gpu-lost and unmonitored", r.Kind)
		}
	}
	return nil
}

// set changes how the driver behaves from now on.
func (d *driver) set(r settings) error {
	next := d.cfg
	if r.Overlap != nil {
		next.Overlap = *r.Overlap
	}
	if r.CDI != nil {
		next.CDI = *r.CDI
	}
	if r.Loss != nil {
		next.Loss = *r.Loss
	}
	if err := next.validate(); err != nil {
		return err
	}
	d.cfg.Overlap, d.cfg.CDI, d.cfg.Loss = next.Overlap, next.CDI, next.Loss
	d.loss.rate = next.Loss
	if r.Silent != nil {
		d.silent = *r.Silent
	}
	return nil
}

func (d *driver) state() (State, error) {
	s := State{PID: os.Getpid(), Prepared: map[string]PreparedClaim{}}
	p := prepared{}
	if _, err := load(d.preparedFile(), &p); err != nil {
		return s, err
	}
	for uid, c := range p {
		s.Prepared[string(uid)] = c
	}
	if r := d.helper.RegistrationStatus(); r != nil {
		s.Registered = r.PluginRegistered
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Devices = slices.Clone(d.inv.Devices)
	s.Errors = slices.Clone(d.errors)
	for _, st := range d.streams {
		s.Streams = append(s.Streams, *st)
	}
	return s, nil
}

// handle registers a POST whose body is a T.
func handle[T any](mux *http.ServeMux, pattern string, f func(context.Context, T) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var req T
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&req); err != nil {
			http.Error(w, fmt.Sprintf("decode the body of %s: %v", r.URL.Path, err), http.StatusBadRequest)
			return
		}
		out, err := f(r.Context(), req)
		reply(w, out, err)
	})
}

func reply(w http.ResponseWriter, out any, err error) {
	switch {
	case errors.Is(err, errNoSuchDevice):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case out == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // a reader that went away needs no answer
	}
}

package fakeplugin

// This file is one resource of the plugin: its devices, its socket, its
// registration, and the list that its streams send.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var errNoSuchDevice = errors.New("no such device")

// Resource is what a plugin says of one of its resources.
type Resource struct {
	Name          string            `json:"name"`
	Endpoint      string            `json:"endpoint"`      // socket name in the device plugin directory
	Devices       map[string]string `json:"devices"`       // health by ID
	Silent        bool              `json:"silent"`        // lists are held back
	Registrations int               `json:"registrations"` // accepted by a kubelet
	Streams       int               `json:"streams"`       // open now
	Sent          int               `json:"sent"`          // lists sent
	Allocated     [][]string        `json:"allocated"`     // IDs of each Allocate, in order
}

// resource serves one extended resource. Its socket can be made anew, because a
// kubelet that starts removes it.
type resource struct {
	api.UnimplementedDevicePluginServer
	dir string
	log *slog.Logger

	serving sync.Mutex // one serve at a time
	server  *grpc.Server
	done    chan error

	mu      sync.Mutex
	state   Resource
	changed chan struct{} // closed and replaced at each change
}

func newResource(c Config, name string, devices map[string]string, log *slog.Logger) *resource {
	endpoint := strings.NewReplacer("/", "_", ".", "-").Replace(name)
	if c.Instance != "" {
		endpoint += "." + c.Instance
	}
	return &resource{
		dir: c.Dir, log: log.With("resource", name), changed: make(chan struct{}),
		state: Resource{Name: name, Endpoint: endpoint + ".sock", Devices: devices},
	}
}

// register makes the socket, anew if a kubelet removed it, and tells the
// kubelet of it.
func (r *resource) register(ctx context.Context) error {
	r.serving.Lock()
	defer r.serving.Unlock()
	socket := filepath.Join(r.dir, r.state.Endpoint)
	if _, err := os.Stat(socket); err != nil || r.server == nil {
		r.stopServing()
		if err := r.serve(socket); err != nil {
			return err
		}
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("register %s: %w", r.state.Name, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: r.state.Endpoint, ResourceName: r.state.Name, Options: &api.DevicePluginOptions{},
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("register %s: %w", r.state.Name, err)
	}
	r.mu.Lock()
	r.state.Registrations++
	r.mu.Unlock()
	r.log.Info("registered", "endpoint", r.state.Endpoint)
	return nil
}

func (r *resource) serve(socket string) error {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove old socket of %s: %w", r.state.Name, err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen for %s: %w", r.state.Name, err)
	}
	r.server, r.done = grpc.NewServer(), make(chan error, 1)
	api.RegisterDevicePluginServer(r.server, r)
	go func(s *grpc.Server, done chan<- error) { done <- s.Serve(l) }(r.server, r.done)
	return nil
}

// stopServing ends the server and its streams. The caller holds serving.
func (r *resource) stopServing() {
	if r.server == nil {
		return
	}
	r.server.Stop()
	if err := <-r.done; err != nil {
		r.log.Error("server ended", "error", err)
	}
	r.server = nil
}

func (r *resource) stop() {
	r.serving.Lock()
	defer r.serving.Unlock()
	r.stopServing()
}

// change applies f to the state and makes the streams send it.
func (r *resource) change(f func(*Resource) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := f(&r.state); err != nil {
		return fmt.Errorf("resource %s: %w", r.state.Name, err)
	}
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

func (r *resource) snapshot() Resource {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Devices = maps.Clone(s.Devices)
	s.Allocated = slices.Clone(s.Allocated)
	return s
}

// GetDevicePluginOptions implements the device plugin API.
func (r *resource) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements the device plugin API: the whole list, at once and
// after each change.
func (r *resource) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	r.mu.Lock()
	r.state.Streams++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.state.Streams--
	}()
	for {
		r.mu.Lock()
		list, changed, silent := list(r.state.Devices), r.changed, r.state.Silent
		r.mu.Unlock()
		if !silent {
			if err := stream.Send(list); err != nil {
				return err
			}
			r.mu.Lock()
			r.state.Sent++
			r.mu.Unlock()
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func list(devices map[string]string) *api.ListAndWatchResponse {
	out := &api.ListAndWatchResponse{}
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		out.Devices = append(out.Devices, &api.Device{ID: id, Health: devices[id]})
	}
	return out
}

// Allocate implements the device plugin API. The container gets its IDs in an
// environment variable.
func (r *resource) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	out := &api.AllocateResponse{}
	for _, c := range req.ContainerRequests {
		r.mu.Lock()
		r.state.Allocated = append(r.state.Allocated, slices.Clone(c.DevicesIds))
		r.mu.Unlock()
		r.log.Info("allocate", "ids", c.DevicesIds)
		out.ContainerResponses = append(out.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"FAKE_DEVICES": strings.Join(c.DevicesIds, ",")},
		})
	}
	return out, nil
}

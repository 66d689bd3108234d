package fakeplugin

// This file is the client of a plugin's HTTP control: one method for each thing
// that a test can make happen.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Client scripts one running plugin.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client of the control at a host:port.
func NewClient(address string) *Client {
	return &Client{base: "http://" + address, http: &http.Client{Timeout: 30 * time.Second}}
}

// SetHealth sets the health of one device of a resource. Any text goes; the
// kubelet takes all but "Healthy" for Unhealthy.
func (c *Client) SetHealth(ctx context.Context, resource, id, health string) error {
	return c.post(ctx, "/health", deviceRequest{Resource: resource, ID: id, Health: health})
}

// Healthy says that a device is well.
func (c *Client) Healthy(ctx context.Context, resource, id string) error {
	return c.SetHealth(ctx, resource, id, api.Healthy)
}

// Unhealthy says that a device is bad. There is no way to say why.
func (c *Client) Unhealthy(ctx context.Context, resource, id string) error {
	return c.SetHealth(ctx, resource, id, api.Unhealthy)
}

// Remove takes a device off the list.
func (c *Client) Remove(ctx context.Context, resource, id string) error {
	return c.post(ctx, "/remove", deviceRequest{Resource: resource, ID: id})
}

// Add puts a healthy device on the list.
func (c *Client) Add(ctx context.Context, resource, id string) error {
	return c.post(ctx, "/add", deviceRequest{Resource: resource, ID: id, Health: api.Healthy})
}

// Silence keeps the streams of a resource open and sends nothing, or ends that.
func (c *Client) Silence(ctx context.Context, resource string, on bool) error {
	return c.post(ctx, "/silence", deviceRequest{Resource: resource, On: on})
}

// Register registers all resources with the kubelet, again if need be.
func (c *Client) Register(ctx context.Context) error {
	return c.post(ctx, "/register", deviceRequest{})
}

// Crash ends the plugin with SIGKILL: its sockets stay.
func (c *Client) Crash(ctx context.Context) error {
	err := c.post(ctx, "/crash", deviceRequest{})
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	if err == nil {
		return errors.New("plugin answered and did not crash")
	}
	return err
}

// State returns what is so.
func (c *Client) State(ctx context.Context) (State, error) {
	var s State
	body, err := c.do(ctx, http.MethodGet, "/state", nil)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("decode the plugin's state: %w", err)
	}
	return s, nil
}

// Resource returns what is so of one resource.
func (c *Client) Resource(ctx context.Context, name string) (Resource, error) {
	s, err := c.State(ctx)
	if err != nil {
		return Resource{}, err
	}
	for _, r := range s.Resources {
		if r.Name == name {
			return r, nil
		}
	}
	return Resource{}, fmt.Errorf("the plugin has no resource %q", name)
}

// WaitRegistered waits until a kubelet has opened a stream of every resource.
func (c *Client) WaitRegistered(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := c.State(ctx)
		ready := err == nil && len(s.Resources) > 0
		for _, r := range s.Resources {
			ready = ready && r.Streams > 0 && (r.Silent || r.Sent > 0)
		}
		if ready {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until a kubelet watches the plugin at %s: %w (last answer: %v)", c.base, ctx.Err(), err)
		}
	}
}

func (c *Client) post(ctx context.Context, path string, in any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the body of %s: %w", path, err)
	}
	_, err = c.do(ctx, http.MethodPost, path, body)
	return err
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("tell the plugin %s: %w", path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the plugin's answer to %s: %w", path, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("tell the plugin %s: %s", path, strings.TrimSpace(string(text)))
	}
	return text, nil
}

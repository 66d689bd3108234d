package fakedriver

// This file is the client of a driver's HTTP control: one method for each thing
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

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// Client scripts one running driver.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client of the control at a host:port.
func NewClient(address string) *Client {
	return &Client{base: "http://" + address, http: &http.Client{Timeout: 30 * time.Second}}
}

// SetHealth sets what the driver says about a device, and takes away a taint
// that an earlier event brought. Under the nasty profile the report of it may be lost; it is then repeated after Config.Resend, and at
// most two in a row are lost.
func (c *Client) SetHealth(ctx context.Context, device string, h Health) error {
	return c.post(ctx, "/health", healthRequest{Device: device, Health: h}, nil)
}

// Healthy says that a device is well.
func (c *Client) Healthy(ctx context.Context, device string) error {
	return c.SetHealth(ctx, device, Health{Status: kubeletplugin.HealthStatusHealthy})
}

// Unhealthy says that a device is bad, and why.
func (c *Client) Unhealthy(ctx context.Context, device, message string) error {
	return c.SetHealth(ctx, device, Health{Status: kubeletplugin.HealthStatusUnhealthy, Message: message})
}

// Unknown says that the driver cannot tell.
func (c *Client) Unknown(ctx context.Context, device, message string) error {
	return c.SetHealth(ctx, device, Health{Status: kubeletplugin.HealthStatusUnknown, Message: message})
}

// Xid makes the driver see an Xid on a device, as NVIDIA's driver would: health
// and message by class, and with own taints <driver>/xid in the slice. A taint
// of the driver keeps new Pods off by itself: a test of Sickbay's own mark uses
// Unhealthy instead, or a driver without own taints.
func (c *Client) Xid(ctx context.Context, device string, number int) error {
	return c.post(ctx, "/event", eventRequest{Devices: []string{device}, Kind: "xid", Xid: number}, nil)
}

// Lost makes the driver see that devices fell off the bus. Without devices it
// is all of them, which is what NVIDIA's driver does when it cannot tell which.
func (c *Client) Lost(ctx context.Context, devices ...string) error {
	return c.post(ctx, "/event", eventRequest{Devices: devices, Kind: "gpu-lost"}, nil)
}

// Unmonitored makes the driver unable to watch devices; without devices, all.
func (c *Client) Unmonitored(ctx context.Context, devices ...string) error {
	return c.post(ctx, "/event", eventRequest{Devices: devices, Kind: "unmonitored"}, nil)
}

// Omit leaves a device out of the health reports, or takes it in again.
func (c *Client) Omit(ctx context.Context, device string, on bool) error {
	return c.post(ctx, "/omit", deviceRequest{Device: device, On: on}, nil)
}

// Silence keeps the streams open and sends nothing, or ends that.
func (c *Client) Silence(ctx context.Context, on bool) error {
	return c.post(ctx, "/settings", settings{Silent: &on}, nil)
}

// SetLoss changes the share of reports that are lost, 0 to 1.
func (c *Client) SetLoss(ctx context.Context, rate float64) error {
	return c.post(ctx, "/settings", settings{Loss: &rate}, nil)
}

// SetOverlap changes what a second Prepare of one device gets.
func (c *Client) SetOverlap(ctx context.Context, rule Overlap) error {
	return c.post(ctx, "/settings", settings{Overlap: &rule}, nil)
}

// SetCDI changes the CDI IDs of claims that are prepared from now on.
func (c *Client) SetCDI(ctx context.Context, mode CDI) error {
	return c.post(ctx, "/settings", settings{CDI: &mode}, nil)
}

// Resend sends a full report now. It is never lost.
func (c *Client) Resend(ctx context.Context) error {
	return c.post(ctx, "/resend", struct{}{}, nil)
}

// CloseStream ends the open health streams. The kubelet opens a new one within
// 5 s.
func (c *Client) CloseStream(ctx context.Context) error {
	return c.post(ctx, "/close", struct{}{}, nil)
}

// Vanish takes a device out and republishes the slices at a new generation.
func (c *Client) Vanish(ctx context.Context, device string) error {
	return c.post(ctx, "/vanish", deviceRequest{Device: device}, nil)
}

// Add plugs a device in and republishes the slices at a new generation.
func (c *Client) Add(ctx context.Context, d Device) error {
	return c.post(ctx, "/add", d, nil)
}

// Swap replaces the board behind a device name: new UUID, same name and bus
// address, Healthy, slices at a new generation.
func (c *Client) Swap(ctx context.Context, device string) (Device, error) {
	var d Device
	err := c.post(ctx, "/swap", deviceRequest{Device: device}, &d)
	return d, err
}

// SetTaints sets the driver's own taints on a device, replacing those set
// before; taints from events stay.
func (c *Client) SetTaints(ctx context.Context, device string, taints ...resourceapi.DeviceTaint) error {
	return c.post(ctx, "/taints", deviceRequest{Device: device, Taints: taints}, nil)
}

// Crash ends the driver with SIGKILL: sockets and slices stay as they are.
func (c *Client) Crash(ctx context.Context) error {
	err := c.post(ctx, "/crash", struct{}{}, nil)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	if err == nil {
		return errors.New("driver answered and did not crash")
	}
	return err
}

// State returns what is so.
func (c *Client) State(ctx context.Context) (State, error) {
	var s State
	err := c.do(ctx, http.MethodGet, "/state", nil, &s)
	return s, err
}

// WaitRegistered waits until a kubelet has accepted the driver.
func (c *Client) WaitRegistered(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := c.State(ctx)
		if err == nil && s.Registered {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until a kubelet registers the driver at %s: %w (last answer: %v)", c.base, ctx.Err(), err)
		}
	}
}

func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the body of %s: %w", path, err)
	}
	return c.do(ctx, http.MethodPost, path, body, out)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("tell the driver %s: %w", path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the driver's answer to %s: %w", path, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("tell the driver %s: %s", path, strings.TrimSpace(string(text)))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("decode the driver's answer to %s: %w", path, err)
	}
	return nil
}

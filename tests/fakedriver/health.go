package fakedriver

// This file is about health reports: what a stream says, when it is sent, and
// which sends are lost.

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// maxLost bounds the reports that are dropped in a row. With it a test knows
// how long to wait: a change has reached the kubelet after
// (maxLost+1) × Config.Resend, whatever the seed.
const maxLost = 2

// lossy decides which sends are dropped.
type lossy struct {
	rng  *rand.Rand
	rate float64
	row  int
}

func newLossy(rate float64, seed uint64) lossy {
	return lossy{rate: rate, rng: rand.New(rand.NewPCG(seed, seed))}
}

func (l *lossy) drop() bool {
	if l.rate <= 0 || l.row >= maxLost || l.rng.Float64() >= l.rate {
		l.row = 0
		return false
	}
	l.row++
	return true
}

// Stream is a health stream that a kubelet has opened.
type Stream struct {
	ID     int    `json:"id"`
	API    string `json:"api"` // v1 or v1alpha1
	Sent   int    `json:"sent"`
	Lost   int    `json:"lost"`
	Closed bool   `json:"closed"`
}

type apiKey struct{}

// apiStream carries the gRPC version of a health stream to WatchHealthStatus,
// which the helper library keeps ignorant of it.
type apiStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s apiStream) Context() context.Context { return s.ctx }

func recordAPI(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	api, _, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), ".")
	return next(srv, apiStream{ServerStream: ss, ctx: context.WithValue(ss.Context(), apiKey{}, api)})
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin]. The helper calls it
// once for each stream that a kubelet opens.
func (d *driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	if d.cfg.HealthAPI == HealthDeclined {
		return kubeletplugin.ErrHealthNotSupported
	}
	d.mu.Lock()
	api, _ := ctx.Value(apiKey{}).(string)
	s := &Stream{ID: len(d.streams) + 1, API: api}
	d.streams = append(d.streams, s)
	closeAt := d.closes + 1
	known := d.cfg.UnknownFirst <= 0
	d.mu.Unlock()
	d.log.Info("health stream opened", "stream", s.ID, "api", api)
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		s.Closed = true
		d.log.Info("health stream ended", "stream", s.ID, "sent", s.Sent, "lost", s.Lost)
	}()

	resend := time.NewTicker(d.cfg.Resend)
	defer resend.Stop()
	var learn <-chan time.Time
	if !known {
		t := time.NewTimer(d.cfg.UnknownFirst)
		defer t.Stop()
		learn = t.C
	}
	forcedSeen := -1
	for {
		d.mu.Lock()
		changed, closed, silent := d.changed, d.closes >= closeAt, d.silent
		forced := forcedSeen >= 0 && d.forced != forcedSeen
		forcedSeen = d.forced
		report := d.inv.report(d.cfg.poolName(), known, time.Now())
		send := !closed && !silent
		if send && !forced && d.loss.drop() {
			send = false
			s.Lost++
		}
		d.mu.Unlock()
		if closed {
			return nil
		}
		if send {
			select {
			case reports <- report:
				d.mu.Lock()
				s.Sent++
				d.mu.Unlock()
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-changed:
		case <-resend.C:
		case <-learn:
			known, learn = true, nil
		case <-ctx.Done():
			return nil
		}
	}
}

// report is a full health report. Before the driver knows its devices it calls
// all of them Unknown.
func (inv *inventory) report(pool string, known bool, now time.Time) kubeletplugin.DeviceHealthReport {
	var r kubeletplugin.DeviceHealthReport
	for _, dev := range inv.Devices {
		if dev.Omitted {
			continue
		}
		h := kubeletplugin.DeviceHealth{
			PoolName: pool, DeviceName: dev.Name, LastUpdated: now,
			Health: dev.Health.Status, Message: dev.Health.Message, HealthCheckTimeout: dev.Health.Timeout,
		}
		if !known {
			h.Health, h.Message = kubeletplugin.HealthStatusUnknown, ""
		}
		r.Devices = append(r.Devices, h)
	}
	return r
}

package fakedriver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// runAsDriver makes the test binary a driver process, so that it can be killed.
const runAsDriver = "FAKEDRIVER_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsDriver) != "" {
		cfg, err := ParseFlags(os.Args[1:], os.Stderr)
		if err == nil {
			err = Run(context.Background(), cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		}
		slog.Error("driver ended", "error", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// testConfig is a driver on a machine without API server: what is tested here
// is the kubelet's side of it.
func testConfig(t *testing.T, p Profile) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "fd") // short: socket paths end at 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := Defaults(p)
	c.Node, c.KubeletRoot = "n1", dir
	c.StateDir, c.CDIDir, c.AddressFile = filepath.Join(dir, "state"), filepath.Join(dir, "cdi"), filepath.Join(dir, "address")
	c.Kubeconfig = filepath.Join(dir, "kubeconfig")
	const away = `{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: c, user: u}}]}`
	if err := os.WriteFile(c.Kubeconfig, []byte(away), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs a driver in this process and ends it with the test.
func start(t *testing.T, c Config) *Client {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("driver ended: %v", err)
		}
	})
	return NewClient(address(t, c.AddressFile))
}

func address(t *testing.T, file string) string {
	t.Helper()
	var text string
	within(t, 20*time.Second, "the driver listens", func() bool {
		raw, err := os.ReadFile(file)
		text = string(raw)
		return err == nil
	})
	return text
}

func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", d, what)
		}
	}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// plugins is the driver's socket directory.
func plugins(c Config) string { return filepath.Join(c.KubeletRoot, "plugins", c.Name) }

// watch opens a health stream as a kubelet of 1.37 does and hands on what it says.
func watch(t *testing.T, c Config) <-chan map[string]*healthv1.DeviceHealth {
	t.Helper()
	conn := dial(t, filepath.Join(plugins(c), "dra.sock"))
	stream, err := healthv1.NewDRAResourceHealthClient(conn).NodeWatchResources(t.Context(), &healthv1.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan map[string]*healthv1.DeviceHealth, 1000)
	go func() {
		defer close(out)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			m := map[string]*healthv1.DeviceHealth{}
			for _, d := range r.Devices {
				m[d.Device.PoolName+"/"+d.Device.DeviceName] = d
			}
			out <- m
		}
	}()
	return out
}

// next returns the next report, nil when the stream ended.
func next(t *testing.T, reports <-chan map[string]*healthv1.DeviceHealth) map[string]*healthv1.DeviceHealth {
	t.Helper()
	select {
	case r := <-reports:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no report within 20 s")
		return nil
	}
}

func TestTheKubeletIsOfferedTheHealthServicesAsked(t *testing.T) {
	const v1, v1alpha1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
	for api, want := range map[HealthAPI]struct {
		offered   []string
		v1, alpha codes.Code
	}{
		HealthBoth:     {offered: []string{v1, v1alpha1}},
		HealthV1:       {offered: []string{v1}, alpha: codes.Unimplemented},
		HealthV1alpha1: {offered: []string{v1alpha1}, v1: codes.Unimplemented},
		HealthNone:     {v1: codes.Unimplemented, alpha: codes.Unimplemented},
		HealthDeclined: {offered: []string{v1, v1alpha1}, v1: codes.Unimplemented, alpha: codes.Unimplemented},
	} {
		t.Run(string(api), func(t *testing.T) {
			c := testConfig(t, Plain)
			c.HealthAPI = api
			client := start(t, c)

			reg := registration.NewRegistrationClient(dial(t, filepath.Join(c.KubeletRoot, "plugins_registry", c.Name+"-reg.sock")))
			info, err := reg.GetInfo(t.Context(), &registration.InfoRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var offered []string
			for _, s := range info.SupportedVersions {
				if strings.HasSuffix(s, "DRAResourceHealth") {
					offered = append(offered, s)
				}
			}
			if strings.Join(offered, " ") != strings.Join(want.offered, " ") {
				t.Errorf("offers %q, want %q", offered, want.offered)
			}
			if _, err := reg.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
				t.Fatal(err)
			}
			if err := client.WaitRegistered(t.Context()); err != nil {
				t.Error(err)
			}

			conn := dial(t, filepath.Join(plugins(c), "dra.sock"))
			a, err := healthv1.NewDRAResourceHealthClient(conn).NodeWatchResources(t.Context(), &healthv1.NodeWatchResourcesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Recv(); status.Code(err) != want.v1 {
				t.Errorf("v1 answers %v, want %v", err, want.v1)
			}
			b, err := healthv1alpha1.NewDRAResourceHealthClient(conn).NodeWatchResources(t.Context(), &healthv1alpha1.NodeWatchResourcesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Recv(); status.Code(err) != want.alpha {
				t.Errorf("v1alpha1 answers %v, want %v", err, want.alpha)
			}
		})
	}
}

func TestAStreamSaysWhatTheTestTellsIt(t *testing.T) {
	c := testConfig(t, Plain)
	c.Pool, c.Resend = "row1/rack2", time.Hour
	client, ctx := start(t, c), t.Context()
	reports := watch(t, c)
	if r := next(t, reports); len(r) != 2 || r["row1/rack2/gpu-0"].Health != healthv1.HealthStatus_HEALTHY {
		t.Fatalf("first report: %v", r)
	}
	h := Health{Status: "Unhealthy", Message: "ecc", Timeout: 7 * time.Second}
	if err := client.SetHealth(ctx, "gpu-0", h); err != nil {
		t.Fatal(err)
	}
	got := next(t, reports)["row1/rack2/gpu-0"]
	if got.Health != healthv1.HealthStatus_UNHEALTHY || got.Message != "ecc" || got.HealthCheckTimeoutSeconds != 7 {
		t.Errorf("told Unhealthy, ecc, 7 s: said %v", got)
	}
	if err := client.Omit(ctx, "gpu-0", true); err != nil {
		t.Fatal(err)
	}
	if r := next(t, reports); len(r) != 1 || r["row1/rack2/gpu-1"] == nil {
		t.Errorf("with gpu-0 omitted: %v", r)
	}
	if err := client.Silence(ctx, true); err != nil {
		t.Fatal(err)
	}
	if err := client.Unknown(ctx, "gpu-1", ""); err != nil {
		t.Fatal(err)
	}
	if err := client.Silence(ctx, false); err != nil {
		t.Fatal(err)
	}
	if r := next(t, reports); r["row1/rack2/gpu-1"].Health != healthv1.HealthStatus_UNKNOWN {
		t.Errorf("after the silence: %v", r)
	}
	s, err := client.State(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Streams) != 1 || s.Streams[0].API != "v1" || s.Streams[0].Sent != 4 {
		t.Errorf("streams are %+v: the silent change must not have been sent", s.Streams)
	}
	if err := client.CloseStream(ctx); err != nil {
		t.Fatal(err)
	}
	if r := next(t, reports); r != nil {
		t.Errorf("the stream was to end and said %v", r)
	}
	if r := next(t, watch(t, c)); len(r) != 1 {
		t.Errorf("a new stream says %v", r)
	}
	err = client.Unhealthy(ctx, "gpu-7", "")
	if err == nil || !strings.Contains(err.Error(), `the driver has ["gpu-0" "gpu-1"]`) {
		t.Errorf("a device that is not there gives %v", err)
	}
}

func TestANastyDriverKnowsNothingAtFirstAndLosesReports(t *testing.T) {
	c := testConfig(t, Nasty)
	c.UnknownFirst, c.Resend, c.Loss = 300*time.Millisecond, 50*time.Millisecond, 0.9
	client := start(t, c)
	reports := watch(t, c)
	if r := next(t, reports); r["n1/gpu-0"].Health != healthv1.HealthStatus_UNKNOWN {
		t.Errorf("the first word on gpu-0 is %v", r["n1/gpu-0"])
	}
	if err := client.Xid(t.Context(), "gpu-0", 79); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "the Xid is reported", func() bool {
		d := next(t, reports)["n1/gpu-0"]
		return d.Health == healthv1.HealthStatus_UNHEALTHY && d.Message == "critical XID 79 reported by NVML"
	})
	s, err := client.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Streams[0].Lost == 0 {
		t.Error("nothing was lost")
	}
	if taint := s.Devices[0].OwnTaint; taint == nil || taint.Key != "gpu.nvidia.com/xid" {
		t.Errorf("taint is %v", taint)
	}
	if err := client.Healthy(t.Context(), "gpu-0"); err != nil {
		t.Fatal(err)
	}
	if s, err = client.State(t.Context()); err != nil || s.Devices[0].OwnTaint != nil {
		t.Errorf("told that gpu-0 is well, the driver keeps the taint %v (%v)", s.Devices[0].OwnTaint, err)
	}
}

func TestACrashedDriverForgetsOrRemembers(t *testing.T) {
	for profile, want := range map[Profile]healthv1.HealthStatus{
		Nasty: healthv1.HealthStatus_HEALTHY,
		Plain: healthv1.HealthStatus_UNHEALTHY,
	} {
		t.Run(string(profile), func(t *testing.T) {
			c := testConfig(t, profile)
			c.UnknownFirst, c.Loss = 0, 0
			run := func() (*Client, *exec.Cmd) {
				os.Remove(c.AddressFile)
				cmd := exec.CommandContext(t.Context(), os.Args[0], c.Args()...)
				cmd.Env = append(os.Environ(), runAsDriver+"=1")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return NewClient(address(t, c.AddressFile)), cmd
			}
			client, cmd := run()
			if err := client.Unhealthy(t.Context(), "gpu-0", "ecc"); err != nil {
				t.Fatal(err)
			}
			if err := client.Crash(t.Context()); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.String() != "signal: killed" {
				t.Errorf("crash ended it with %v", err)
			}
			if _, err := os.Stat(filepath.Join(plugins(c), "dra.sock")); err != nil {
				t.Errorf("a crash leaves its socket: %v", err)
			}
			client, cmd = run()
			if r := next(t, watch(t, c)); r["n1/gpu-0"].Health != want {
				t.Errorf("the new process says %v of the device that was bad", r["n1/gpu-0"])
			}
			if err := client.Crash(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
		})
	}
}

func TestTwoInstancesOfOneDriverServeAtOnce(t *testing.T) {
	old := testConfig(t, Plain)
	old.Instance = "v1"
	upgraded := old
	upgraded.Instance, upgraded.AddressFile, upgraded.StateDir = "v2", old.AddressFile+"2", old.StateDir+"2"
	start(t, old)
	start(t, upgraded)
	for _, c := range []Config{old, upgraded} {
		conn, err := net.Dial("unix", filepath.Join(plugins(c), "dra-"+c.Instance+".sock"))
		if err != nil {
			t.Errorf("instance %s: %v", c.Instance, err)
			continue
		}
		conn.Close()
	}
}

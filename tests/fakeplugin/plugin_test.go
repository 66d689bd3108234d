package fakeplugin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// runAsPlugin makes the test binary a plugin process, so that it can be killed.
const runAsPlugin = "FAKEPLUGIN_TEST_RUN"

const gpu = "fake.example.com/gpu"

func TestMain(m *testing.M) {
	if os.Getenv(runAsPlugin) != "" {
		cfg, err := ParseFlags(os.Args[1:], os.Stderr)
		if err == nil {
			err = Run(context.Background(), cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		}
		slog.Error("plugin ended", "error", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func testConfig(t *testing.T, p Profile) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp") // short: socket paths end at 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := Defaults(p)
	c.Dir, c.StateDir, c.AddressFile = dir, filepath.Join(dir, "state"), filepath.Join(dir, "address")
	return c
}

// kubelet is the registration service of a kubelet, which hands on what
// registers.
type kubelet struct {
	api.UnimplementedRegistrationServer
	registered chan *api.RegisterRequest
	server     *grpc.Server
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.registered <- r
	return &api.Empty{}, nil
}

// startKubelet starts one as a kubelet does: whatever sockets are there go.
func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(dir, "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sockets {
		os.Remove(s)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{registered: make(chan *api.RegisterRequest, 10), server: grpc.NewServer()}
	api.RegisterRegistrationServer(k.server, k)
	served := make(chan error, 1)
	go func() { served <- k.server.Serve(l) }()
	t.Cleanup(func() {
		k.server.Stop()
		<-served
	})
	return k
}

func (k *kubelet) next(t *testing.T) *api.RegisterRequest {
	t.Helper()
	select {
	case r := <-k.registered:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("nothing registered within 20 s")
		return nil
	}
}

// watch opens the stream of a registered plugin and hands on its lists.
func watch(t *testing.T, dir string, r *api.RegisterRequest) (<-chan map[string]string, api.DevicePluginClient) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := api.NewDevicePluginClient(conn)
	stream, err := client.ListAndWatch(t.Context(), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan map[string]string, 100)
	go func() {
		defer close(out)
		for {
			l, err := stream.Recv()
			if err != nil {
				return
			}
			m := map[string]string{}
			for _, d := range l.Devices {
				m[d.ID] = d.Health
			}
			out <- m
		}
	}()
	return out, client
}

func expect(t *testing.T, lists <-chan map[string]string, want map[string]string) {
	t.Helper()
	select {
	case got := <-lists:
		if !reflect.DeepEqual(got, want) {
			t.Errorf("list is %v, want %v", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no list within 20 s, want %v", want)
	}
}

func start(t *testing.T, c Config) *Client {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("plugin ended: %v", err)
		}
	})
	return NewClient(address(t, c.AddressFile))
}

func address(t *testing.T, file string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if raw, err := os.ReadFile(file); err == nil {
			return string(raw)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the plugin does not listen within 20 s")
		}
	}
}

func TestFlagsCarryTheWholeConfiguration(t *testing.T) {
	nasty, plain := Defaults(Nasty), Defaults(Plain)
	nasty.StateDir, plain.StateDir = "/s", "/s"
	plain.Resources = Resources{"a.example.com/x": 1, "b.example.com/y": 8}
	plain.Dir, plain.AddressFile, plain.Instance, plain.Memory, plain.Register = "/d", "/a", "i", false, false
	for _, c := range []Config{nasty, plain} {
		got, err := ParseFlags(c.Args(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, c) {
			t.Errorf("came back as\n%+v\nwant\n%+v", got, c)
		}
	}
	if nasty.Reregister || nasty.Memory {
		t.Error("the nasty profile comes back after a kubelet restart, or remembers")
	}
	if _, err := ParseFlags([]string{"-state-dir=s", "-resources=gpu"}, io.Discard); err == nil || !strings.Contains(err.Error(), "domain/name=count") {
		t.Errorf("a resource without domain gives %v", err)
	}
}

func TestTheListSaysWhatTheTestTellsIt(t *testing.T) {
	c := testConfig(t, Nasty)
	c.Resources = Resources{gpu: 2, "fake.example.com/nic": 1}
	k := startKubelet(t, c.Dir)
	client, ctx := start(t, c), t.Context()
	r := k.next(t)
	if r.ResourceName != gpu || k.next(t).ResourceName != "fake.example.com/nic" {
		t.Fatalf("registered %v first", r)
	}
	lists, plugin := watch(t, c.Dir, r)
	expect(t, lists, map[string]string{"GPU-0": "Healthy", "GPU-1": "Healthy"})

	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(client.Unhealthy(ctx, gpu, "GPU-1"))
	expect(t, lists, map[string]string{"GPU-0": "Healthy", "GPU-1": "Unhealthy"})
	check(client.Remove(ctx, gpu, "GPU-1"))
	expect(t, lists, map[string]string{"GPU-0": "Healthy"})
	check(client.Silence(ctx, gpu, true))
	check(client.Add(ctx, gpu, "GPU-7"))
	check(client.Silence(ctx, gpu, false))
	expect(t, lists, map[string]string{"GPU-0": "Healthy", "GPU-7": "Healthy"})

	if _, err := plugin.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"GPU-7"}}}}); err != nil {
		t.Fatal(err)
	}
	res, err := client.Resource(ctx, gpu)
	check(err)
	if res.Sent != 4 || res.Streams != 1 || len(res.Allocated) != 1 || res.Allocated[0][0] != "GPU-7" {
		t.Errorf("the plugin says %+v: the silent change must not have been sent", res)
	}
	if err := client.Unhealthy(ctx, gpu, "GPU-1"); err == nil || !strings.Contains(err.Error(), `the plugin has ["GPU-0" "GPU-7"]`) {
		t.Errorf("a device that is not there gives %v", err)
	}
}

func TestAKubeletThatRestartsFindsThePluginOrNot(t *testing.T) {
	for _, profile := range []Profile{Nasty, Plain} {
		t.Run(string(profile), func(t *testing.T) {
			c := testConfig(t, profile)
			k := startKubelet(t, c.Dir)
			client := start(t, c)
			watch(t, c.Dir, k.next(t))
			k.server.Stop()
			again := startKubelet(t, c.Dir)
			if profile == Nasty {
				// The stream outlives the socket; only a registration brings the
				// plugin back, and it comes when it is told.
				if err := client.Register(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			lists, _ := watch(t, c.Dir, again.next(t))
			expect(t, lists, map[string]string{"GPU-0": "Healthy", "GPU-1": "Healthy"})
			res, err := client.Resource(t.Context(), gpu)
			if err != nil {
				t.Fatal(err)
			}
			if res.Registrations != 2 {
				t.Errorf("%d registrations, want 2", res.Registrations)
			}
		})
	}
}

func TestAPluginStaysAwayUntilItIsToldToRegister(t *testing.T) {
	c := testConfig(t, Nasty)
	c.Register = false
	k := startKubelet(t, c.Dir)
	client := start(t, c)
	res, err := client.Resource(t.Context(), gpu)
	if err != nil {
		t.Fatal(err)
	}
	if res.Registrations != 0 {
		t.Fatalf("%d registrations before any was asked for", res.Registrations)
	}
	if err := client.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := k.next(t); r.ResourceName != gpu {
		t.Errorf("registered %v", r)
	}
}

func TestACrashedPluginForgetsOrRemembers(t *testing.T) {
	for profile, want := range map[Profile]string{Nasty: "Healthy", Plain: "Unhealthy"} {
		t.Run(string(profile), func(t *testing.T) {
			c := testConfig(t, profile)
			k := startKubelet(t, c.Dir)
			run := func() *Client {
				os.Remove(c.AddressFile)
				cmd := exec.CommandContext(t.Context(), os.Args[0], c.Args()...)
				cmd.Env = append(os.Environ(), runAsPlugin+"=1")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cmd.Wait() }) // killed
				return NewClient(address(t, c.AddressFile))
			}
			client := run()
			k.next(t)
			if err := client.Unhealthy(t.Context(), gpu, "GPU-0"); err != nil {
				t.Fatal(err)
			}
			if err := client.Crash(t.Context()); err != nil {
				t.Fatal(err)
			}
			client = run()
			lists, _ := watch(t, c.Dir, k.next(t))
			expect(t, lists, map[string]string{"GPU-0": want, "GPU-1": "Healthy"})
			if err := client.Crash(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

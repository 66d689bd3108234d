package kubelet

// This file runs Sickbay on the node, as it is shipped, and asks it what it thinks.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/image"
	"github.com/sickbay-dev/sickbay/tests/product"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// sickbay is starters and workers that run, in mode enforce, and what asks them.
type sickbay struct {
	binary string
	env    []string
	cases  *devicewf.Client
}

// stability is how long an advisory case has to see its device healthy. The node's
// status, by which a device that left its plugin's list shows, comes up to
// statusFrequency after the Pod's, and after a kubelet's start later than that.
const stability = 10 * time.Second

// archive is the image that all versions run, built once.
var archive struct {
	once   sync.Once
	folder string
	path   string
	err    error
}

func buildImage(t *testing.T) string {
	t.Helper()
	archive.once.Do(func() {
		if archive.folder, archive.err = os.MkdirTemp("", "sickbay-image-"); archive.err == nil {
			began := time.Now()
			archive.path, archive.err = image.Build(context.Background(), archive.folder)
			t.Logf("the image is built after %s", time.Since(began).Round(time.Second))
		}
	})
	must(t, archive.err)
	return archive.path
}

func TestMain(m *testing.M) {
	product.Main(m, func() error { return os.RemoveAll(archive.folder) })
}

// shortWindows are the settings of Sickbay for tests that wait for the end of its windows.
func shortWindows() map[string]string {
	return map[string]string{
		"SICKBAY_GRACE": "15s", "SICKBAY_RECHECK_FIRST": "1s", "SICKBAY_RECHECK_MAX": "3s", "SICKBAY_HYSTERESIS": "3s",
		// Devices that are out stay out, for what is tried of them.
		"SICKBAY_PROBE_NAMESPACE": "",
		"SICKBAY_COOL_DOWN":       "1s", "SICKBAY_STABILITY": stability.String(), "SICKBAY_SETTLE_ALLOCATABLE": "20s",
		"SICKBAY_PLUGIN_AWAY": "2s",
		// Of a few devices as many may be kept out as fail.
		"SICKBAY_BUDGET_CLUSTER": "none", "SICKBAY_BUDGET_CLASS": "none",
		// Each device of the one node counts by itself.
		"SICKBAY_STORM_GATHER": "1s", "SICKBAY_STORM_NODE_DEVICES": "100",
		"SICKBAY_WATCH_POKE": watchPoke.String(),
	}
}

// applySickbay applies what is shipped, with marks allowed, and returns when all of its
// Pods run with these settings: from the image, as its accounts, under its limits.
func (s *suite) applySickbay(t *testing.T, settings map[string]string) {
	t.Helper()
	settings["SICKBAY_LOG_LEVEL"] = "debug"
	overlay := deploy.Overlay{Components: []string{deploy.Enforce, deploy.Watch}, Settings: settings}
	folder := t.TempDir()
	must(t, overlay.Write(folder))
	kubectl, err := deploy.FindKubectl(t.Context(), s.stack.Kubeconfig())
	must(t, err)
	// The rights are there already, for the attempts, and belong to who applied them.
	must(t, kubectl.Apply(t.Context(), folder, "--force-conflicts"))
	for _, name := range []string{"starter", "worker"} {
		_, _, err := kubectl.Run(t.Context(), "--namespace", deploy.Namespace, "rollout", "status", "deployment", name, "--timeout", (2 * soon).String())
		must(t, err)
	}
	s.awaitReady(t, map[string]int{"starter": 2, "worker": 2})
}

// startSickbay runs Sickbay, whose image the node has, under these settings.
func (s *suite) startSickbay(t *testing.T, settings map[string]string) {
	t.Helper()
	binary, err := product.Shared()
	must(t, err)
	must(t, s.node.ServeOutside(t.Context(), "temporal", "temporal-frontend", 7233, s.stack.TemporalAddress()))
	s.applySickbay(t, settings)
	temporal, err := client.NewLazyClient(client.Options{
		HostPort: s.stack.TemporalAddress(), Namespace: s.stack.TemporalNamespace(),
		Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	must(t, err)
	s.sickbay = &sickbay{binary: binary, env: product.Environment(s.stack), cases: devicewf.NewClient(temporal, "sickbay")}
}

// awaitCase waits until a device's case is as check wants it, and returns it.
func (s *suite) awaitCase(t *testing.T, key device.Key, what string, check func(quarantine.Case) error) quarantine.Case {
	t.Helper()
	var last quarantine.Case
	within(t, soon, fmt.Sprintf("the case of %s %s", key, what), func(ctx context.Context) error {
		state, err := s.sickbay.cases.State(ctx, key)
		if err != nil {
			return err
		}
		last = state.Case
		return check(state.Case)
	})
	return last
}

// noCase fails the test if a device has a case.
func (s *suite) noCase(t *testing.T, key device.Key) {
	t.Helper()
	if running, err := s.sickbay.cases.Running(t.Context(), key); running || err != nil {
		t.Errorf("%s has a case (%t), or nobody can tell: %v", key, running, err)
	}
}

// inForce wants a mark that is confirmed.
func inForce(c quarantine.Case) error {
	if c.Phase != quarantine.PhaseQuarantined || c.Mark.State != quarantine.MarkInForce {
		return fmt.Errorf("it is %s, its mark %s %s", c.Phase, c.Mark.State, c.Mark.Detail)
	}
	return nil
}

// marked is the devices of a driver that have a mark in the cluster.
func (s *suite) marked(t *testing.T, driver string) map[device.Key]bool {
	t.Helper()
	config := s.stack.RESTConfig()
	capabilities, err := kube.Discover(t.Context(), discovery.NewDiscoveryClientForConfigOrDie(config))
	must(t, err)
	rules, err := dynamic.NewForConfigOrDie(config).Resource(capabilities.TaintRules).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	found := map[device.Key]bool{}
	for _, rule := range rules.Items {
		if mark, ours := kube.ReadMark(&rule); ours && mark.Device.Driver == driver {
			found[mark.Device] = true
		}
	}
	return found
}

// devicesCommand runs `sickbay devices`, as an operator would.
func (s *suite) devicesCommand(ctx context.Context) (listing.Listing, error) {
	command := exec.CommandContext(ctx, s.sickbay.binary, "devices", "-o", "json")
	command.Env = append(os.Environ(), s.sickbay.env...)
	var out, failed bytes.Buffer
	command.Stdout, command.Stderr = &out, &failed
	if err := command.Run(); err != nil {
		return listing.Listing{}, fmt.Errorf("sickbay devices: %w: %s", err, failed.String())
	}
	var l listing.Listing
	err := json.Unmarshal(out.Bytes(), &l)
	return l, err
}

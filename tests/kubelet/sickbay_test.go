package kubelet

// This file runs Sickbay beside the kubelet and asks it what it thinks.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
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
	"github.com/sickbay-dev/sickbay/tests/product"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

func TestMain(m *testing.M) { product.Main(m) }

// sickbay is a starter and a worker that run, in mode enforce, and what asks
// them. Its windows are the product's own but for those that a test waits for.
type sickbay struct {
	binary string
	env    []string
	cases  *devicewf.Client
}

// stability is how long an advisory case has to see its device healthy. The node's
// status, by which a device that left its plugin's list shows, comes up to
// statusFrequency after the Pod's, and after a kubelet's start later than that.
const stability = 10 * time.Second

// startSickbay runs Sickbay until the version's tests end.
func (s *suite) startSickbay(t *testing.T) {
	t.Helper()
	binary, err := product.Shared()
	must(t, err)
	for _, service := range []product.Service{
		{Command: "worker", Env: []string{
			"SICKBAY_MODE=enforce", "SICKBAY_GRACE=15s", "SICKBAY_RECHECK_FIRST=1s", "SICKBAY_RECHECK_MAX=3s",
			"SICKBAY_HYSTERESIS=3s", "SICKBAY_COOL_DOWN=1s", "SICKBAY_STABILITY=" + stability.String(), "SICKBAY_SETTLE_ALLOCATABLE=20s",
		}},
		{Command: "starter", Env: []string{"SICKBAY_LEADER_ELECTION_NAMESPACE=" + namespace, "SICKBAY_PLUGIN_AWAY=2s"}},
	} {
		service.Binary = binary
		service.Env = append(service.Env, "SICKBAY_LOG_LEVEL=debug")
		_, err := product.Start(t.Context(), s.stack, service)
		must(t, err)
	}
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

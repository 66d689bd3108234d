package kubelet

// This file makes attempts at recovery on a real kubelet, gate by gate, without the case
// that asks for them: what runs is what is shipped.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/fakedriver"
	"github.com/sickbay-dev/sickbay/tests/realnode"
)

// probesIn is the namespace of deploy/components/enforce/recovery.
const probesIn = "sickbay-probes"

func attempts() []test {
	return []test{
		{name: "a marked device is proven healthy, and its fault is heard on our claim", run: provenHealthy},
		{name: "a program that can't start, fails or hangs is told of", run: badPrograms},
	}
}

// trying is an attempt at one device, by a worker's account.
type trying struct {
	*suite
	t        *testing.T
	attempts *kube.Attempts
	marks    *kube.MarkWriter
	settings policy.ProbeSettings
	tend     quarantine.Tend
	// runFor is what a gate's program gets; zero is enough.
	runFor time.Duration
}

// tries begins an attempt at a device of the driver that is marked.
func (s *suite) tries(t *testing.T, driver, name string) *trying {
	t.Helper()
	accounts, err := deploy.Grant(t.Context(), s.stack, deploy.Enforce)
	must(t, err)
	worker := accounts.Worker.Config
	marks := kube.NewMarkWriter(dynamic.NewForConfigOrDie(worker), kube.NewDiscovery(discovery.NewDiscoveryClientForConfigOrDie(worker), time.Minute))
	key, epoch := s.key(t, driver, name), time.Now().UnixMilli()
	mark := quarantine.PutMark{Device: key, Node: s.node.Name(), Epoch: epoch, Revision: 1, Actor: "sickbay", Since: time.Now(), Until: time.Now().Add(time.Hour)}
	report, err := marks.Put(t.Context(), mark)
	if err != nil || report.Outcome != quarantine.OutcomeInForce {
		t.Fatalf("the mark: %+v, %v", report, err)
	}
	own := func(args ...string) policy.ProgramSettings {
		return policy.ProgramSettings{Image: "ghcr.io/sickbay-dev/sickbay:dev", Args: args}
	}
	return &trying{
		suite: s, t: t, marks: marks, attempts: kube.NewAttempts(kubernetes.NewForConfigOrDie(worker), probesIn, marks, reason.Builtin()),
		settings: policy.ProbeSettings{Hold: own("probe", "hold"), Probe: own("probe"), Canary: own("probe", "--for", "2s", "--every", "1s")},
		tend:     quarantine.Tend{Device: key, Node: s.node.Name(), Epoch: epoch, Attempt: 1, Token: epoch + 1},
	}
}

// provenHealthy goes through the gates with Sickbay's own programs.
func provenHealthy(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.CDI, c.OwnTaints = fakedriver.CDIDevice, false })
	a := s.tries(t, d.Config.Name, "gpu-1")
	defer a.cleans()
	began := time.Now()
	got := a.until(quarantine.GateEvidence, time.Minute, "Healthy, read anew", func(got quarantine.Tended) error {
		if got.Reading == nil || got.Reading.Health != device.Healthy || !got.Reading.Acknowledged {
			return fmt.Errorf("reading %+v, trouble %q", got.Reading, got.Trouble)
		}
		return nil
	})
	t.Logf("from the claim to Healthy on it: %s", time.Since(began).Round(100*time.Millisecond))
	claim, err := s.client.ResourceV1().ResourceClaims(probesIn).Get(t.Context(), got.Claim, metav1.GetOptions{})
	must(t, err)
	if view := kube.ClaimView(claim); len(view.Results) != 1 || view.Results[0].Device != a.tend.Device {
		t.Errorf("the claim has %+v, want %s", view.Results, a.tend.Device)
	}
	for _, gate := range []quarantine.Gate{quarantine.GateProbe, quarantine.GateCanary} {
		passed := a.until(gate, time.Minute, "its program passes", jobIs(quarantine.JobPassed))
		if passed.Pod != got.Pod || !strings.HasPrefix(passed.Report, "exit code 0: ") || !strings.Contains(passed.Report, `"verdict":"passed"`) {
			t.Errorf("gate %s with Pod %s: %s; want the same Pod %s, and a report", gate, passed.Pod, passed.Report, got.Pod)
		}
		if passed.Reading == nil || passed.Reading.Health != device.Healthy {
			t.Errorf("gate %s: reading %+v, want Healthy", gate, passed.Reading)
		}
	}
	must(t, d.Xid(t.Context(), "gpu-1", 79))
	a.until(quarantine.GateStability, soon, "the fault is heard", func(got quarantine.Tended) error {
		if got.Reading == nil || got.Reading.Health != device.Unhealthy || got.Reading.Reason.Rule != "nvidia/xid-79" || !got.Reading.Monitor {
			return fmt.Errorf("reading %+v", got.Reading)
		}
		return nil
	})
}

// badPrograms runs what doesn't do what it should.
func badPrograms(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.CDI, c.OwnTaints, c.Devices = fakedriver.CDIDevice, false, 1 })
	a := s.tries(t, d.Config.Name, "gpu-0")
	defer a.cleans()
	a.settings.Probe = policy.ProgramSettings{Image: realnode.Image, Args: []string{"-exit", "7"}}
	failed := a.until(quarantine.GateProbe, time.Minute, "it fails", jobIs(quarantine.JobFailed))
	// Its last words are those that it logged: it wrote no message.
	if !strings.HasPrefix(failed.Report, "exit code 7: ") || !strings.Contains(failed.Report, "DEVICE="+a.tend.Device.String()) {
		t.Errorf("report %q, want exit code 7 and what it was told", failed.Report)
	}
	a.settings.Canary, a.runFor = policy.ProgramSettings{Image: realnode.Image}, 5*time.Second
	hangs := a.until(quarantine.GateCanary, time.Minute, "it hangs", jobIs(quarantine.JobFailed))
	if !strings.Contains(hangs.Report, "deadline") {
		t.Errorf("report %q, want the deadline", hangs.Report)
	}
	a.tend.Token, a.runFor = a.tend.Token+1, 0
	a.settings.Probe = policy.ProgramSettings{Image: "localhost/sickbay/none:1"}
	a.until(quarantine.GateProbe, time.Minute, "its image isn't there", func(got quarantine.Tended) error {
		if got.Job != quarantine.JobStarting || !strings.Contains(got.Trouble, "image localhost/sickbay/none:1 can't be had") {
			return fmt.Errorf("job %q, trouble %q", got.Job, got.Trouble)
		}
		return nil
	})
}

func jobIs(want quarantine.JobState) func(quarantine.Tended) error {
	return func(got quarantine.Tended) error {
		if got.Job != want {
			return fmt.Errorf("job %q (%s), trouble %q", got.Job, got.Report, got.Trouble)
		}
		return nil
	}
}

// until tends to a gate until the answer is what is wanted.
func (a *trying) until(gate quarantine.Gate, limit time.Duration, what string, wanted func(quarantine.Tended) error) (got quarantine.Tended) {
	a.t.Helper()
	within(a.t, limit, what, func(ctx context.Context) (err error) {
		tend := a.tend
		tend.Gate, tend.Asked, tend.Deadline = gate, time.Now(), time.Now().Add(10*time.Minute)
		if a.runFor > 0 {
			tend.Deadline = time.Now().Add(a.runFor)
		}
		// What is known is what was told last: an answer may wait for news.
		tend.Job = got.Job
		if got.Reading != nil {
			tend.Health = got.Reading.Health
		}
		if got, err = a.attempts.Tend(ctx, tend, a.settings); err != nil {
			return err
		}
		return wanted(got)
	})
	return got
}

// cleans clears the attempts away, wants nothing left of them, and lifts the mark.
func (a *trying) cleans() {
	within(a.t, soon, "nothing is left of the attempts", func(ctx context.Context) error {
		cleaned, err := a.attempts.CleanUp(ctx, quarantine.CleanUp{Device: a.tend.Device, UpTo: a.tend.Token})
		if err == nil && cleaned.Failed != "" {
			err = errors.New(cleaned.Failed)
		}
		return err
	})
	_, err := a.marks.Lift(a.t.Context(), quarantine.LiftMark{Device: a.tend.Device, Epoch: a.tend.Epoch})
	must(a.t, err)
}

package e2e

// This file takes things away from a site, one at a time, and wants `sickbay doctor`
// to name each with its remedy.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// site is a cluster with everything that Sickbay needs, and the doctor that looks
// at it.
type site struct {
	*cluster
	binary string
	redis  *redis.Client
	// viewers counts the users that asViewer made.
	viewers int
}

// startSite brings a site up: two workers, a starter, a directory, and a Pod whose
// device is healthy.
func startSite(t *testing.T, opts stack.Options) *site {
	t.Helper()
	opts.Temporal, opts.Redis, opts.Provokes = true, true, true
	s := &site{cluster: start(t, opts, 1, 2)}
	if _, err := deploy.Grant(t.Context(), s.stack, deploy.Enforce); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.binary, err = product.Shared(); err != nil {
		t.Fatal(err)
	}
	s.redis = redis.NewClient(&redis.Options{Addr: s.stack.RedisAddress()})
	t.Cleanup(func() { _ = s.redis.Close() })
	// The stack keeps closed workflows for a day.
	if err := s.retain(t.Context(), 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	s.work(fastPolicy())
	s.process("worker", "worker", "", fastEnvironment()...)
	s.runPod("train-0")
	s.eventually("the Pod's health is there", 20*time.Second, func(ctx context.Context) error {
		pod, err := s.kube.CoreV1().Pods("default").Get(ctx, "train-0", metav1.GetOptions{})
		if err == nil && len(pod.Status.ContainerStatuses[0].AllocatedResourcesStatus) == 0 {
			err = errors.New("it isn't")
		}
		return err
	})
	s.eventually("both workers poll", 20*time.Second, func(ctx context.Context) error {
		report, _, err := s.look(ctx, nil)
		if err != nil {
			return err
		}
		for _, f := range report.Findings {
			if f.Check == "temporal/workers" && f.State == doctor.OK {
				return nil
			}
		}
		return fmt.Errorf("%+v", report.Findings)
	})
	return s
}

func (s *site) retain(ctx context.Context, retention time.Duration) error {
	_, err := s.temporal.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
		Namespace: s.stack.TemporalNamespace(),
		Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(retention)},
	})
	return err
}

// look runs the doctor with further variables and arguments.
func (s *site) look(ctx context.Context, env []string, args ...string) (report doctor.Report, code int, err error) {
	command := exec.CommandContext(ctx, s.binary, append([]string{"doctor", "-o", "json"}, args...)...)
	command.Env = slices.Concat(os.Environ(), product.Environment(s.stack), []string{
		"SICKBAY_MODE=enforce", "SICKBAY_REDIS_ADDRESSES=" + s.stack.RedisAddress(),
	}, env)
	var out, failed bytes.Buffer
	command.Stdout, command.Stderr = &out, &failed
	// One that is killed would leave behind what its probe made.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	if err := command.Run(); err != nil {
		exit, ended := errors.AsType[*exec.ExitError](err)
		if !ended {
			return report, 0, err
		}
		code = exit.ExitCode()
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return report, code, fmt.Errorf("exit code %d: %w: %s%s", code, err, out.String(), failed.String())
	}
	return report, code, nil
}

// lacks is one row: what is taken away, and what the doctor has to say of it.
type lacks struct {
	// take takes it away and returns how to bring it back; nil where env or args do.
	take func(*testing.T, *site) (back func() error)
	env  func(*site) []string
	args []string

	check string
	state doctor.State
	found string
	// remedy is part of what it tells to do.
	remedy string
	code   int
	// others are checks that can't be ok without it either, by the beginning of their
	// names.
	others []string
}

// clean wants that nothing is lacking.
func (s *site) clean(what string, args ...string) {
	s.t.Helper()
	s.eventually(what, 20*time.Second, func(ctx context.Context) error {
		report, code, err := s.look(ctx, nil, args...)
		if err != nil {
			return err
		}
		var wrong []string
		for _, f := range report.Findings {
			if f.State != doctor.OK {
				wrong = append(wrong, fmt.Sprintf("%s %s", f.Check, f.Line()))
			}
		}
		if len(wrong) > 0 || code != 0 {
			return fmt.Errorf("exit code %d: %s", code, strings.Join(wrong, "\n"))
		}
		return nil
	})
}

// wants takes one thing away and looks.
func (s *site) wants(t *testing.T, row lacks) {
	var back func() error
	if row.take != nil {
		back = row.take(t, s)
	}
	var env []string
	if row.env != nil {
		env = row.env(s)
	}
	defer func() {
		if back == nil {
			return
		}
		if err := back(); err != nil {
			t.Errorf("bring it back: %v", err)
		}
	}()
	probe := *s
	cluster := *s.cluster
	cluster.t = t
	probe.cluster = &cluster
	probe.eventually("it is named", 40*time.Second, func(ctx context.Context) error {
		report, code, err := s.look(ctx, env, row.args...)
		if err != nil {
			return err
		}
		named := false
		for _, f := range report.Findings {
			if f.Check == row.check {
				named = true
				if f.State != row.state || !strings.Contains(f.Found, row.found) || !strings.Contains(f.Remedy, row.remedy) || f.Without == "" {
					return fmt.Errorf("%s says %s", f.Check, f.Line())
				}
				continue
			}
			if f.State != doctor.OK && !slices.ContainsFunc(row.others, func(other string) bool { return strings.HasPrefix(f.Check, other) }) {
				return fmt.Errorf("%s isn't ok either: %s", f.Check, f.Line())
			}
		}
		if !named {
			return fmt.Errorf("nothing is said of %s: %+v", row.check, report.Findings)
		}
		if code != row.code {
			return fmt.Errorf("exit code %d, want %d", code, row.code)
		}
		return nil
	})
}

// Each thing that Sickbay needs is taken away from a site of its own accord or by
// hand, and the doctor names that and nothing else, says what doesn't work without
// it, and how to mend it.
func TestTheDoctorNamesEachThingThatIsMissing(t *testing.T) {
	s := startSite(t, stack.Options{Kubernetes: "1.37"})
	s.clean("nothing is missing, and nothing is said to be", "--probe", "--strict")
	for name, row := range kubernetesLacks() {
		t.Run(name, func(t *testing.T) { s.wants(t, row) })
	}
	for name, row := range temporalLacks() {
		t.Run(name, func(t *testing.T) { s.wants(t, row) })
	}
	for name, row := range redisLacks() {
		t.Run(name, func(t *testing.T) { s.wants(t, row) })
	}
	s.clean("all of it is back", "--probe", "--strict")
	s.together(t)
	if report, code, err := s.look(t.Context(), s.redisUser("whole"), "--strict"); err != nil || code != 0 {
		t.Errorf("with the user of docs/directory.md: exit code %d, %v, %+v", code, err, report.Findings)
	}
	s.nothingLeft()
	t.Run("the page says what its commands do", func(t *testing.T) {
		back := func() error { return nil }
		pages.Run(t, pages.Page{
			Path: "docs/doctor.md", Update: *updatePage,
			Env: slices.Concat(product.Environment(s.stack), pages.Terminal(t, s.binary), []string{
				"SICKBAY_REDIS_ADDRESSES=" + s.stack.RedisAddress(),
			}),
			Mask: func(line string) string { return identities.ReplaceAllString(pages.Masked(line), "2: WORKERS") },
			Before: func(command string) {
				if strings.Contains(command, "enforce") {
					back = s.withoutBinding(t, "sickbay-worker-marks")
				}
			},
		})
		if err := back(); err != nil {
			t.Error(err)
		}
	})
}

// together runs two probes at once, beside what one left behind that was killed:
// each judges by its own device.
func (s *site) together(t *testing.T) {
	t.Helper()
	left := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "sickbay-doctor-left"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "doctor.sickbay.dev", AllNodes: new(true), Pool: resourcev1.ResourcePool{Name: "sickbay-doctor-left", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "probe", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"probe": {StringValue: new("left")}}}},
		},
	}
	slices := s.kube.ResourceV1().ResourceSlices()
	if _, err := slices.Create(t.Context(), left, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var probes sync.WaitGroup
	for range 3 {
		probes.Go(func() {
			report, code, err := s.look(t.Context(), nil, "--probe", "--strict")
			if err != nil || code != 0 {
				t.Errorf("a probe beside others: exit code %d, %v, %+v", code, err, report.Findings)
			}
		})
	}
	probes.Wait()
	if err := slices.Delete(t.Context(), left.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// identities are how workers call themselves to Temporal.
var identities = regexp.MustCompile(`2: .*`)

// nothingLeft wants that no probe left anything behind.
func (s *site) nothingLeft() {
	s.t.Helper()
	slices, err := s.kube.ResourceV1().ResourceSlices().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, slice := range slices.Items {
		if slice.Spec.Driver != simnode.DefaultDriver {
			s.t.Errorf("ResourceSlice %s of driver %s is left over", slice.Name, slice.Spec.Driver)
		}
	}
	classes, err := s.kube.ResourceV1().DeviceClasses().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, class := range classes.Items {
		if strings.HasPrefix(class.Name, "sickbay-doctor") {
			s.t.Errorf("DeviceClass %s is left over", class.Name)
		}
	}
	rules, err := s.rules(s.t.Context())
	if err != nil || len(rules) != 0 {
		s.t.Errorf("%d DeviceTaintRules are left over (%v)", len(rules), err)
	}
	pods, err := s.kube.CoreV1().Pods("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if strings.HasPrefix(pod.Name, "sickbay-doctor") {
			s.t.Errorf("Pod %s is left over", pod.Name)
		}
	}
}

// A scheduler that gives tainted devices away, a controller manager that takes no
// note of rules, and an API server that drops health: only trying, or its own word,
// shows it.
func TestTheDoctorFindsGatesThatAreOff(t *testing.T) {
	off := []string{"--feature-gates=DRADeviceTaintRules=false"}
	s := startSite(t, stack.Options{
		Kubernetes: "1.37", SchedulerFlags: off, ControllerManagerFlags: off,
		APIServerFlags: []string{"--feature-gates=ResourceHealthStatusMessage=false"},
	})
	gates := lacks{
		args:  []string{"--probe"},
		check: "kubernetes/gates/ResourceHealthStatusMessage", state: doctor.Degraded, found: "off", remedy: "--feature-gates=ResourceHealthStatusMessage=true", code: 1,
		others: []string{"kubernetes/scheduler", "kubernetes/controller-manager"},
	}
	scheduler, controllers := gates, gates
	scheduler.check, scheduler.state, scheduler.found, scheduler.remedy = "kubernetes/scheduler", doctor.Missing, "in spite of a DeviceTaintRule", "DRADeviceTaintRules"
	scheduler.others = append(scheduler.others, gates.check)
	controllers.check, controllers.state, controllers.found, controllers.remedy = "kubernetes/controller-manager", doctor.Degraded, "takes no note", "DRADeviceTaintRules"
	controllers.others = append(controllers.others, gates.check)
	for name, row := range map[string]lacks{"of the API server": gates, "of the scheduler": scheduler, "of the controller manager": controllers} {
		t.Run(name, func(t *testing.T) { s.wants(t, row) })
	}
	s.nothingLeft()

	// Somebody who doesn't want to wait for it leaves nothing behind either.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, _, err := s.look(ctx, nil, "--probe")
		ended <- err
	}()
	s.eventually("the probe is under way", 20*time.Second, func(ctx context.Context) error {
		rules, err := s.rules(ctx)
		if err == nil && len(rules) == 0 {
			err = errors.New("there is no rule of the doctor's")
		}
		return err
	})
	cancel()
	<-ended
	s.nothingLeft()
}

// 1.36 as its operator finds it: without the API to mark devices with. What is there
// with it is compared too.
func TestTheDoctorTellsHowToMarkDevicesIn136(t *testing.T) {
	bare := startSite(t, stack.Options{Kubernetes: "1.36", NoTaintRules: true})
	bare.wants(t, lacks{
		args:  []string{"--probe"},
		check: "kubernetes/taint-rules", state: doctor.Degraded, found: "no DeviceTaintRule API", remedy: "--runtime-config=resource.k8s.io/v1beta2=true",
		others: []string{"kubernetes/gates/DRADeviceTaintRules"},
	})
	whole := startSite(t, stack.Options{Kubernetes: "1.36"})
	whole.clean("nothing is missing", "--probe", "--strict")
	whole.nothingLeft()
	for _, kind := range []string{"resourceslices", "deviceclasses", "devicetaintrules", "resourceclaims", "pods"} {
		t.Run("given up while it makes "+kind, func(t *testing.T) { whole.givenUp(t, kind) })
	}
}

// givenUp has somebody give a probe up when the API server has made an object of a kind,
// and the probe hasn't heard of it yet.
func (s *site) givenUp(t *testing.T, kind string) {
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	config := rest.CopyConfig(s.stack.RESTConfig())
	made := 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodPost || path.Base(r.URL.Path) != kind {
				return next.RoundTrip(r)
			}
			// Whether it was made doesn't hang on who waits for the answer.
			answer, err := next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
			made++
			giveUp()
			if r.Context().Err() != nil {
				return nil, r.Context().Err()
			}
			return answer, err
		})
	})
	cluster := doctor.Cluster{Kubernetes: kubernetes.NewForConfigOrDie(config), Dynamic: dynamic.NewForConfigOrDie(config)}
	report := doctor.Run(ctx, time.Minute, doctor.System{Reach: cluster.Reach(), Then: []doctor.Check{cluster.Probe("default")}})
	if made != 1 || report.Worst() != doctor.Unknown {
		t.Errorf("%d %s were made until it was given up, and it found %s, want one and Unknown: %+v", made, kind, report.Worst(), report.Findings)
	}
	s.nothingLeft()
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

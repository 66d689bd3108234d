package e2e

// This file takes things away from a site, one at a time, and wants `sickbay doctor`
// to name each with its remedy.

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/checks"
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

// patched changes an object by a merge patch and returns how to change it back.
func (s *site) patched(t *testing.T, patch func(ctx context.Context, body []byte) error, there, back string) func() error {
	t.Helper()
	if err := patch(t.Context(), []byte(there)); err != nil {
		t.Fatal(err)
	}
	return func() error { return patch(context.Background(), []byte(back)) }
}

func kubernetesLacks() map[string]lacks {
	return map[string]lacks{
		"the API server is away": {
			env: func(s *site) []string {
				return []string{"SICKBAY_KUBECONFIG=" + s.kubeconfigOf(&rest.Config{Host: "https://127.0.0.1:1"})}
			},
			check: "kubernetes/version", state: doctor.Missing, found: "connection refused", remedy: "kubeconfig", code: 1,
		},
		"a Kubernetes that is too old": {
			env: func(s *site) []string {
				return s.behind("/version", `{"major":"1","minor":"35","gitVersion":"v1.35.2"}`)
			},
			check: "kubernetes/version", state: doctor.Missing, found: "v1.35.2", remedy: "Upgrade", code: 1,
		},
		"a Kubernetes that nobody tried": {
			env: func(s *site) []string {
				return s.behind("/version", `{"major":"1","minor":"38","gitVersion":"v1.38.0"}`)
			},
			check: "kubernetes/version", state: doctor.Degraded, found: "v1.38.0", remedy: "SICKBAY_MODE=observe",
		},
		"no resource API": {
			env:   func(s *site) []string { return s.behind("/apis/resource.k8s.io/v1", "") },
			check: "kubernetes/resource-api", state: doctor.Missing, found: "isn't served", remedy: "--runtime-config", code: 1,
			// What there is to mark devices with is in the same API.
			others: []string{"kubernetes/taint-rules"},
		},
		"a right of the starter": {
			take: func(t *testing.T, s *site) func() error {
				return s.withoutBinding(t, "sickbay-starter")
			},
			check: "kubernetes/rights/starter", state: doctor.Missing, found: "list or watch pods", remedy: "Apply deploy/base", code: 1,
		},
		"the right to make marks": {
			take: func(t *testing.T, s *site) func() error {
				return s.withoutBinding(t, "sickbay-worker-marks")
			},
			check: "kubernetes/rights/worker", state: doctor.Missing, found: "create or delete or update devicetaintrules.resource.k8s.io", remedy: "deploy/components/enforce", code: 1,
		},
		"the right to tell of decisions": {
			take: func(t *testing.T, s *site) func() error {
				role, err := s.kube.RbacV1().ClusterRoles().Get(t.Context(), "sickbay-worker", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				whole := role.DeepCopy()
				role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
				if role, err = s.kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				return func() error {
					whole.ResourceVersion = role.ResourceVersion
					_, err := s.kube.RbacV1().ClusterRoles().Update(context.Background(), whole, metav1.UpdateOptions{})
					return err
				}
			},
			check: "kubernetes/rights/worker", state: doctor.Degraded, found: "may not create or patch events", remedy: "Apply deploy/base",
		},
		"the fence around marks": {
			take: func(t *testing.T, s *site) func() error {
				bindings := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
				binding, err := bindings.Get(t.Context(), "sickbay-marks", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				return func() error {
					binding.ResourceVersion, binding.UID = "", ""
					_, err := bindings.Create(context.Background(), binding, metav1.CreateOptions{})
					return err
				}
			},
			check: "kubernetes/fence", state: doctor.Degraded, found: "make one of every device, and make one with NoExecute", remedy: "policy.yaml",
		},
		"the fence around marks that are there": {
			take: func(t *testing.T, s *site) func() error {
				mark, err := kube.NewMark(put(s.allocated("train-0"), 1000, 1))
				if err != nil {
					t.Fatal(err)
				}
				rules := s.kube.ResourceV1().DeviceTaintRules()
				if _, err := rules.Create(t.Context(), mark, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				operations := func(ctx context.Context, which string) error {
					_, err := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Patch(ctx, "sickbay-marks", types.JSONPatchType,
						[]byte(`[{"op":"replace","path":"/spec/matchConstraints/resourceRules/0/operations","value":["`+which+`"]}]`), metav1.PatchOptions{})
					return err
				}
				if err := operations(t.Context(), "CREATE"); err != nil {
					t.Fatal(err)
				}
				return func() error {
					return errors.Join(operations(context.Background(), "*"), rules.Delete(context.Background(), mark.Name, metav1.DeleteOptions{}))
				}
			},
			check: "kubernetes/fence", state: doctor.Degraded, found: "make of a mark one with NoExecute", remedy: "policy.yaml",
		},
		"one clause of the fence": {
			take: func(t *testing.T, s *site) func() error {
				policies := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
				policy, err := policies.Get(t.Context(), "sickbay-marks", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				set := func(ctx context.Context, validations []admissionv1.Validation) error {
					// The controller manager writes its status.
					return retry.RetryOnConflict(retry.DefaultRetry, func() error {
						policy, err := policies.Get(ctx, "sickbay-marks", metav1.GetOptions{})
						if err != nil {
							return err
						}
						policy.Spec.Validations = validations
						_, err = policies.Update(ctx, policy, metav1.UpdateOptions{})
						return err
					})
				}
				whole := policy.Spec.Validations
				err = set(t.Context(), slices.DeleteFunc(slices.Clone(whole), func(v admissionv1.Validation) bool {
					return strings.Contains(v.Expression, "taint.effect")
				}))
				if err != nil {
					t.Fatal(err)
				}
				return func() error { return set(context.Background(), whole) }
			},
			check: "kubernetes/fence", state: doctor.Degraded, found: "make one with NoExecute", remedy: "policy.yaml",
		},
		"devices that can be kept out": {
			take: func(t *testing.T, s *site) func() error {
				patch := func(ctx context.Context, body []byte) error {
					_, err := s.kube.CoreV1().Nodes().Patch(ctx, "node-0", types.MergePatchType, body, metav1.PatchOptions{}, "status")
					return err
				}
				return s.patched(t, patch,
					`{"status":{"capacity":{"plugin.example.com/gpu":"4"},"allocatable":{"plugin.example.com/gpu":"4"}}}`,
					`{"status":{"capacity":{"plugin.example.com/gpu":null},"allocatable":{"plugin.example.com/gpu":null}}}`)
			},
			check: "kubernetes/device-plugins/plugin.example.com/gpu", state: doctor.Degraded, found: "devices of a device plugin: 4, on nodes: 1", remedy: "DRA driver",
		},
		"a driver that knows health": {
			take: func(t *testing.T, s *site) func() error {
				return s.reporting(t, corev1.ResourceHealthStatusUnknown)
			},
			check: "kubernetes/health/" + simnode.DefaultDriver, state: doctor.Degraded, found: "all 1 in use are Unknown", remedy: "health service",
		},
		"claims that respect a mark": {
			take: func(t *testing.T, s *site) func() error {
				claim := simnode.MakeClaim("default", "hungry").Request("gpu", simnode.DefaultDriver, 1).Obj()
				claim.Spec.Devices.Requests[0].Exactly.Tolerations = everything()
				claims := s.kube.ResourceV1().ResourceClaims("default")
				if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				return func() error { return claims.Delete(context.Background(), "hungry", metav1.DeleteOptions{}) }
			},
			args:  []string{"--strict"},
			check: "kubernetes/tolerations", state: doctor.Degraded, found: "claim default/hungry", remedy: "tolerate only", code: 1,
		},
		"the right to ask for others": {
			env:   func(s *site) []string { return s.asViewer(s.readAll()...) },
			check: "kubernetes/rights/worker", state: doctor.Unknown, found: "subjectaccessreviews", remedy: "/readyz", code: 3,
			others: []string{"kubernetes/rights/starter", "kubernetes/fence", "kubernetes/node-allocatable"},
		},
		"the right to read the API server's metrics": {
			env:   func(s *site) []string { return s.asViewer(slices.Concat(s.readAll()[:1], s.askForOthers())...) },
			check: "kubernetes/gates", state: doctor.Unknown, found: "/metrics", remedy: "nonResourceURLs", code: 3,
			others: []string{"kubernetes/node-allocatable"},
		},
		"the right to list Pods": {
			env: func(s *site) []string {
				rules := slices.Concat(s.readAll(), s.askForOthers())
				rules[0].Resources = slices.DeleteFunc(slices.Clone(rules[0].Resources), func(r string) bool { return r == "pods" })
				return s.asViewer(rules...)
			},
			check: "kubernetes/health", state: doctor.Unknown, found: "Pods can't be read", remedy: "right to read", code: 3,
			others: []string{"kubernetes/node-allocatable"},
		},
	}
}

func temporalLacks() map[string]lacks {
	return map[string]lacks{
		"Temporal is away": {
			env:   func(*site) []string { return []string{"SICKBAY_TEMPORAL_ADDRESS=127.0.0.1:1"} },
			check: "temporal/server", state: doctor.Missing, found: "127.0.0.1:1 doesn't answer", remedy: "SICKBAY_TEMPORAL_ADDRESS", code: 1,
		},
		"the namespace": {
			env:   func(*site) []string { return []string{"SICKBAY_TEMPORAL_NAMESPACE=elsewhere"} },
			check: "temporal/namespace", state: doctor.Missing, found: "no such namespace", remedy: "sickbay setup temporal", code: 1,
		},
		"the search attributes": {
			env: func(s *site) []string {
				s.t.Helper()
				namespaces, err := client.NewNamespaceClient(client.Options{HostPort: s.stack.TemporalAddress()})
				if err != nil {
					s.t.Fatal(err)
				}
				defer namespaces.Close()
				err = namespaces.Register(s.t.Context(), &workflowservice.RegisterNamespaceRequest{
					Namespace: "bare", WorkflowExecutionRetentionPeriod: durationpb.New(30 * 24 * time.Hour),
				})
				if err != nil {
					s.t.Fatal(err)
				}
				return []string{"SICKBAY_TEMPORAL_NAMESPACE=bare"}
			},
			check: "temporal/search-attributes", state: doctor.Degraded, found: "missing: SickbayDriver, SickbayEpoch", remedy: "sickbay setup temporal", code: 1,
			others: []string{"temporal/workers"},
		},
		"time to read the history of a case": {
			take: func(t *testing.T, s *site) func() error {
				if err := s.retain(t.Context(), 24*time.Hour); err != nil {
					t.Fatal(err)
				}
				return func() error { return s.retain(context.Background(), 30*24*time.Hour) }
			},
			check: "temporal/namespace", state: doctor.Degraded, found: "kept for 1d", remedy: "--retention 30d",
		},
		"workers": {
			env:   func(*site) []string { return []string{"SICKBAY_TEMPORAL_TASK_QUEUE=nobodys"} },
			check: "temporal/workers", state: doctor.Missing, found: "nobody polls task queue nobodys", remedy: "Start workers", code: 1,
		},
	}
}

func redisLacks() map[string]lacks {
	set := func(s *site, t *testing.T, values map[string]string, before map[string]string) func() error {
		t.Helper()
		apply := func(ctx context.Context, all map[string]string) (err error) {
			for name, value := range all {
				err = errors.Join(err, s.redis.ConfigSet(ctx, name, value).Err())
			}
			return err
		}
		if err := apply(t.Context(), values); err != nil {
			t.Fatal(err)
		}
		return func() error { return apply(context.Background(), before) }
	}
	return map[string]lacks{
		"Redis is away": {
			env:   func(*site) []string { return []string{"SICKBAY_REDIS_ADDRESSES=127.0.0.1:1"} },
			check: "redis/server", state: doctor.Degraded, found: "connection refused", remedy: "SICKBAY_REDIS_ADDRESSES",
		},
		"an append-only file": {
			take: func(t *testing.T, s *site) func() error {
				return set(s, t, map[string]string{"appendonly": "no"}, map[string]string{"appendonly": "yes"})
			},
			check: "redis/persistence", state: doctor.Degraded, found: "no append-only file", remedy: "appendonly yes",
		},
		"memory without eviction": {
			take: func(t *testing.T, s *site) func() error {
				return set(s, t, map[string]string{"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"},
					map[string]string{"maxmemory": "0", "maxmemory-policy": "noeviction"})
			},
			check: "redis/eviction", state: doctor.Degraded, found: "allkeys-lru", remedy: "noeviction",
		},
		"the master": {
			take: func(t *testing.T, s *site) func() error {
				if err := s.redis.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
					t.Fatal(err)
				}
				return func() error { return s.redis.ReplicaOf(context.Background(), "NO", "ONE").Err() }
			},
			check: "redis/server", state: doctor.Degraded, found: "slave", remedy: "SICKBAY_REDIS_KIND=sentinel",
		},
		"a right of its Redis user": {
			env: func(s *site) []string {
				s.t.Helper()
				return s.redisUser("narrow", "-xadd", "-zrange")
			},
			check: "redis/rights", state: doctor.Degraded, found: "XADD, ZRANGE", remedy: "ACL SETUSER",
		},
	}
}

// redisUser makes a user by the rule of docs/directory.md, but for some commands.
func (s *site) redisUser(name string, without ...string) []string {
	s.t.Helper()
	root, err := checks.Root()
	if err != nil {
		s.t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "directory.md"))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rule, found := strings.Cut(string(page), "\non >PASSWORD ")
	rule, _, _ = strings.Cut(rule, "\n")
	if !found {
		s.t.Fatal("docs/directory.md has no rule for a user")
	}
	set := []any{"ACL", "SETUSER", name, "on", ">" + name}
	for _, word := range slices.Concat(strings.Fields(rule), without) {
		set = append(set, word)
	}
	if err := s.redis.Do(s.t.Context(), set...).Err(); err != nil {
		s.t.Fatal(err)
	}
	password := filepath.Join(s.t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(name), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return []string{"SICKBAY_REDIS_USERNAME=" + name, "SICKBAY_REDIS_PASSWORD_FILE=" + password}
}

// everything is the toleration that passes every taint.
func everything() []resourcev1.DeviceToleration {
	return []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
}

// reporting sets what the one device in use says of itself.
func (s *site) reporting(t *testing.T, health corev1.ResourceHealthStatus) func() error {
	t.Helper()
	key := s.allocated("train-0")
	set := func(ctx context.Context, health corev1.ResourceHealthStatus) error {
		_, err := s.nodes.Set(ctx, key.Pool, key.Device, health, "")
		return err
	}
	if err := set(t.Context(), health); err != nil {
		t.Fatal(err)
	}
	return func() error { return set(context.Background(), corev1.ResourceHealthStatusHealthy) }
}

// withoutBinding takes a ClusterRoleBinding away.
func (s *site) withoutBinding(t *testing.T, name string) func() error {
	t.Helper()
	bindings := s.kube.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() error {
		binding.ResourceVersion, binding.UID = "", ""
		_, err := bindings.Create(context.Background(), binding, metav1.CreateOptions{})
		return err
	}
}

// readAll are the rights to read all that the doctor reads: of objects, and of paths.
func (s *site) readAll() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{"", "resource.k8s.io"}, Verbs: []string{"list"},
			Resources: []string{"pods", "nodes", "resourceclaims", "resourceclaimtemplates", "resourceslices", "devicetaintrules", "deviceclasses"},
		},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}
}

// askForOthers are the rights to find out what Sickbay's processes may do.
func (s *site) askForOthers() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "groups"}, Verbs: []string{"impersonate"}},
	}
}

// asViewer runs the doctor as somebody with just these rights.
func (s *site) asViewer(rules ...rbacv1.PolicyRule) []string {
	s.t.Helper()
	s.viewers++
	user := fmt.Sprintf("viewer-%d", s.viewers)
	kubeconfig, err := s.stack.UserKubeconfig(user)
	if err != nil {
		s.t.Fatal(err)
	}
	s.grantRules(user, rules)
	return []string{"SICKBAY_KUBECONFIG=" + kubeconfig}
}

// kubeconfigOf writes a configuration into a kubeconfig.
func (s *site) kubeconfigOf(config *rest.Config) string {
	s.t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, InsecureSkipTLSVerify: true}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "x"
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// behind is the site's API server with another answer at one path, or none (404): no
// server that can be built here is that old, that new or without that API.
func (s *site) behind(path, answer string) []string {
	s.t.Helper()
	config := s.stack.RESTConfig()
	address, err := url.Parse(config.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(address)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch {
		case request.URL.Path != path:
			proxy.ServeHTTP(w, request)
		case answer == "":
			http.NotFound(w, request)
		default:
			w.Header().Set("Content-Type", "application/json")
			// A client that hung up needs no answer.
			_, _ = w.Write([]byte(answer))
		}
	}))
	s.t.Cleanup(server.Close)
	return []string{"SICKBAY_KUBECONFIG=" + s.kubeconfigOf(&rest.Config{Host: server.URL, BearerToken: config.BearerToken})}
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
}

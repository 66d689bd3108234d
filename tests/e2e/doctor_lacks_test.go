package e2e

// This file has what is taken away from the doctor's site, row by row, and how.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	"github.com/sickbay-dev/sickbay/tests/simnode"
)

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
			env:   func(s *site) []string { return s.asViewer(slices.Concat(s.readAll()[:2], s.askForOthers())...) },
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
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"sickbay-policy"}, Verbs: []string{"get"}},
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

package pages_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

var update = flag.Bool("update", false, "write what the commands of docs/operating.md say into it")

func TestMain(m *testing.M) { product.Main(m) }

// site is a cluster with a Temporal that nobody prepared for Sickbay.
type site struct {
	t      *testing.T
	stack  *stack.Stack
	nodes  *simnode.Cluster
	kube   kubernetes.Interface
	binary string
	// starter is where the starter answers.
	starter string
	env     []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, stack: stack.Start(t, stack.Options{Kubernetes: "1.37", Temporal: true, TemporalNamespace: "default"})}
	s.kube = kubernetes.NewForConfigOrDie(s.stack.RESTConfig())
	s.nodes = simnode.Start(t, s.stack.SimulatorConfig(), simnode.Options{HeartbeatEvery: time.Second})
	if err := s.nodes.Add(t.Context(), simnode.MakeNodes("node", 1, 2)...); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.binary, err = product.Shared(); err != nil {
		t.Fatal(err)
	}
	s.starter = s.start("starter", "/healthz")
	s.env = s.terminal()
	return s
}

// start runs a service of Sickbay that goes by the namespace that the page makes.
func (s *site) start(service, ready string, env ...string) (address string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	address, err := product.Start(ctx, s.stack, product.Service{
		Binary: s.binary, Command: service, Ready: ready, Env: append(env, "SICKBAY_TEMPORAL_NAMESPACE=sickbay"),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return address
}

// terminal is where an operator types the page's commands.
func (s *site) terminal() []string {
	s.t.Helper()
	parts, err := stack.CommandParts()
	if err != nil {
		s.t.Fatal(err)
	}
	built, err := stack.Build(s.t.Context(), os.Stderr, parts...)
	if err != nil {
		s.t.Fatal(err)
	}
	programs := []string{s.binary}
	for _, program := range built {
		programs = append(programs, program)
	}
	// curl finds the starter at the address that it has by default.
	settings := s.t.TempDir()
	content := fmt.Sprintf("connect-to = \"localhost:8080:%s\"\n", s.starter)
	if err := os.WriteFile(filepath.Join(settings, ".curlrc"), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return append(pages.Terminal(s.t, programs...),
		"KUBECONFIG="+s.stack.Kubeconfig(), "CURL_HOME="+settings,
		"SICKBAY_TEMPORAL_ADDRESS="+s.stack.TemporalAddress(),
		"TEMPORAL_ADDRESS="+s.stack.TemporalAddress(), "TEMPORAL_NAMESPACE=sickbay")
}

// asks runs sickbay for an answer in JSON.
func (s *site) asks(answer any, args ...string) error {
	run := exec.CommandContext(s.t.Context(), s.binary, append(args, "-o", "json")...)
	run.Env = slices.Concat(os.Environ(), s.env)
	said, err := run.Output()
	if err != nil {
		return fmt.Errorf("sickbay %v: %w\n%s", args, err, said)
	}
	return json.Unmarshal(said, answer)
}

// fault lets a device fail that a Pod holds, and waits until its case has come to
// rest.
func (s *site) fault() {
	s.t.Helper()
	ctx := s.t.Context()
	claim := simnode.MakeClaim("default", "train-0").Request("gpu", simnode.DefaultDriver, 1).Obj()
	if _, err := s.kube.ResourceV1().ResourceClaims("default").Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	pod := simnode.MakePod("default", "train-0").Claim("gpu", "train-0").Obj()
	if _, err := s.kube.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.nodes.AwaitPod(ctx, "default", "train-0", simnode.Running); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.nodes.Set(ctx, "node-0", "gpu-0", corev1.ResourceHealthStatusUnhealthy, "critical XID 79 reported by NVML"); err != nil {
		s.t.Fatal(err)
	}
	s.await("the case comes to rest", func(context.Context) error {
		var story listing.Story
		if err := s.asks(&story, "device", "gpu.example.com/node-0/gpu-0"); err != nil {
			return err
		}
		c := story.Case
		if c == nil || c.Mark.State != quarantine.MarkInForce || c.Waiting != quarantine.WaitingForHolder || c.LookedAt.IsZero() {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// log is what a service said.
func (s *site) log(service string) []byte {
	said, err := os.ReadFile(s.stack.Log(service))
	if err != nil {
		return []byte(err.Error())
	}
	return said
}

// await waits until a question is answered without an error.
func (s *site) await(what string, ask func(ctx context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			s.t.Fatalf("%s: %v\nstarter:\n%s\nworker:\n%s", what, err, s.log("starter"), s.log("worker"))
		}
	}
}

// watches wants the starter to have read the cluster, and looked at what it needs.
func (s *site) watches(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.starter+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err == nil && (!strings.Contains(string(said), "watches: ok\n") || strings.Contains(string(said), "not looked at yet")) {
		err = fmt.Errorf("it says %s", said)
	}
	return err
}

// An operator who follows the page from its beginning, on a cluster and a Temporal
// that know nothing of Sickbay, gets what it shows.
func TestAnOperatorWhoFollowsThePageGetsWhatItShows(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatalf("%v: apt-get install curl", err)
	}
	s := newSite(t)
	failed := false
	pages.Run(t, pages.Page{
		Path: "docs/operating.md", Env: s.env, Update: *update,
		Before: func(command string) {
			switch {
			case strings.HasPrefix(command, "curl"):
				s.await("the starter has read the cluster", s.watches)
			case strings.HasPrefix(command, "temporal workflow") && !failed:
				// The first command about cases: by then the namespace is prepared, so
				// that workers can begin, and there is something to see.
				failed = true
				s.start("worker", "/readyz", "SICKBAY_MODE=enforce", "SICKBAY_RECHECK_FIRST=1s", "SICKBAY_RECHECK_MAX=3s")
				s.fault()
			}
		},
	})
}

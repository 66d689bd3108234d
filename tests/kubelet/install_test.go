package kubelet

// This file installs Sickbay on a real node as docs/install.md says, once with its own
// Temporal and Redis, and once with others.

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/checks"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/fakedriver"
	"github.com/sickbay-dev/sickbay/tests/image"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/realnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

var update = flag.Bool("update", false, "write what the commands say into the page")

// Whoever follows docs/install.md sees a fault become a case with nothing but a cluster,
// then a mark with their own Temporal, and knows what is left after an uninstall.
func TestTheCommandsOfThePageInstallSickbay(t *testing.T) {
	realnode.SkipUnlessRoot(t)
	versions := stack.Versions()
	// What a person runs by exec may less than it asks for, and an uninstall takes
	// rights away from what still runs.
	s := newSuite(t, versions[len(versions)-1], true)
	s.importImages(t)
	root, err := checks.Root()
	must(t, err)
	// The page is about a clone; what it makes there isn't for this one.
	clone := t.TempDir()
	must(t, os.CopyFS(filepath.Join(clone, "deploy"), os.DirFS(filepath.Join(root, "deploy"))))
	kubectl, err := deploy.FindKubectl(t.Context(), s.stack.Kubeconfig())
	must(t, err)

	d := s.driver(t, func(c *fakedriver.Config) {
		c.Name, c.Devices, c.CDI, c.OwnTaints = "gpu.example.com", 2, fakedriver.CDIOff, false
	})
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }).Name)
	_, held := s.held(t, pod)
	// devices waits until the command says something.
	devices := func(what, says string) {
		t.Helper()
		within(t, 2*soon, what, func(ctx context.Context) error {
			said, _, err := kubectl.Run(ctx, "--namespace", "sickbay", "exec", "deployment/starter", "--", "sickbay", "devices")
			if err == nil && !strings.Contains(said, says) {
				err = fmt.Errorf("%s", said)
			}
			return err
		})
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, of := range []string{"starter", "worker"} {
			said, _, err := kubectl.Run(context.Background(), "--namespace", "sickbay", "logs", "deployment/"+of, "--tail=30")
			t.Logf("the end of what %s logs:\n%s (%v)", of, said, err)
		}
		said, _, err := kubectl.Run(context.Background(), "--namespace", "sickbay", "get", "configmaps,pods", "--output", "wide")
		t.Logf("%s (%v)", said, err)
		said, _, err = kubectl.Run(context.Background(), "--namespace", "sickbay", "get", "deployment", "worker", "--output", "jsonpath={.spec.template.spec.containers[0].envFrom}")
		t.Logf("%s (%v)", said, err)
	})
	binary, err := product.Shared()
	must(t, err)
	marked := false
	name := regexp.MustCompile(`\bpod-\d+\b`)
	applied := 0
	pages.Run(t, pages.Page{
		Path: "docs/install.md", Dir: clone, Update: *update,
		// What kubectl kept of another cluster at this port isn't for this one.
		Env: []string{"KUBECONFIG=" + s.stack.Kubeconfig(), "KUBECACHEDIR=" + t.TempDir(), "PATH=" + kubectl.Folder() + ":" + filepath.Dir(binary) + ":" + os.Getenv("PATH")},
		Mask: func(line string) string {
			return pages.Masked(name.ReplaceAllString(line, "POD"))
		},
		Before: func(command string) {
			switch {
			case strings.HasPrefix(command, "kubectl --namespace sickbay wait"):
				s.awaitReady(t, map[string]int{"starter": 1, "worker": 1, "temporal": 1, "redis": 1})
			case strings.HasPrefix(command, "SICKBAY_TEMPORAL_ADDRESS="):
				s.forward(t, kubectl)
			case strings.HasPrefix(command, "sed -i 's|newTag"):
				// The next version is this one under another name; tests/e2e upgrades to a real one.
				must(t, s.node.TagImage(t.Context(), "ghcr.io/sickbay-dev/sickbay:dev", "ghcr.io/sickbay-dev/sickbay:next"))
			case strings.Contains(command, "sickbay devices"):
				must(t, d.Xid(t.Context(), held[0], 79))
				devices("the case shows", string(quarantine.PhaseQuarantined))
			case command == "kubectl apply -k site":
				if applied++; applied == 1 {
					must(t, s.node.ServeOutside(t.Context(), "temporal", "temporal-frontend", 7233, s.stack.TemporalAddress()))
					must(t, os.Mkdir(filepath.Join(clone, "site"), 0o755))
					must(t, os.WriteFile(filepath.Join(clone, "site", "kustomization.yaml"), kustomizationOf(t, filepath.Join(root, "docs", "install.md")), 0o600))
				}
			case strings.HasPrefix(command, "sed ") && applied == 1:
				devices("the case is open here too", string(quarantine.PhaseQuarantined))
			case applied == 2 && strings.HasPrefix(command, "kubectl get devicetaintrules") && !marked:
				marked = true
				next := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
				_, has := s.held(t, next)
				must(t, d.Xid(t.Context(), has[0], 79))
				devices("the mark is in force", string(quarantine.MarkInForce))
			}
		},
	})
	if applied != 4 {
		t.Errorf("the page applies its own kustomization as a whole %d times, want 4", applied)
	}
	left, _, err := kubectl.Run(t.Context(), "get", "clusterroles,clusterrolebindings", "--output", "name")
	must(t, err)
	for object := range strings.Lines(left) {
		if strings.Contains(object, "/sickbay-") {
			t.Errorf("the page leaves %s", object)
		}
	}
}

// forward forwards the port of Temporal that the page forwards in another terminal,
// until the test ends or Temporal does.
func (s *suite) forward(t *testing.T, kubectl deploy.Kubectl) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() {
		_, _, err := kubectl.Run(ctx, "--namespace", "sickbay", "port-forward", "deployment/temporal", "7233")
		if ctx.Err() == nil {
			t.Logf("the forwarding of Temporal's port ended: %v", err)
		}
	}()
	within(t, soon, "Temporal's port is forwarded", func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:7233")
		if err == nil {
			err = connection.Close()
		}
		return err
	})
}

// kustomizationOf is the kustomization that the page shows.
func kustomizationOf(t *testing.T, page string) []byte {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("%s shows no kustomization", page)
	}
	return block[1]
}

// importImages gives the node what the evaluation runs. Images of Temporal and Redis
// can't be fetched here: the same programs are packed under the same names.
func (s *suite) importImages(t *testing.T) {
	t.Helper()
	must(t, s.node.ImportImage(t.Context(), buildImage(t)))
	temporal, err := stack.Build(t.Context(), nil, stack.PartTemporalCLI)
	must(t, err)
	redis, err := exec.LookPath("redis-server")
	must(t, err)
	for _, program := range []struct {
		name, path, entrypoint string
	}{
		{"docker.io/temporalio/temporal:1.5.1", temporal[stack.PartTemporalCLI], "temporal"},
		{"docker.io/library/redis:7.4", redis, ""},
	} {
		archive := filepath.Join(t.TempDir(), "image.tar")
		must(t, image.Pack(t.Context(), archive, program.name, program.path, program.entrypoint))
		must(t, s.node.ImportImage(t.Context(), archive))
	}
}

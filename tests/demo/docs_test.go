package main

// This file is about the pages that show the demo: what they show is what it says,
// and what its cluster answers.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/checks"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

var update = flag.Bool("update", false, "write what the demo shows into README.md, and what the commands of docs/cli.md say into it")

var (
	sourced  = regexp.MustCompile(`in another terminal: source ([^;]+);`)
	exported = regexp.MustCompile(`(?m)^export ([A-Z_]+)="(.*)"$`)
	stamp    = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d UTC$`)
)

// shell is another terminal, in which somebody did what the demo tells to do.
type shell struct {
	t   *testing.T
	env []string
	// kubernetes is the demo's cluster, as whoever sourced its environment has it.
	kubernetes kubernetes.Interface
}

func (r *running) shell(t *testing.T) *shell {
	t.Helper()
	found := sourced.FindStringSubmatch(r.text())
	if found == nil {
		t.Fatal("the demo doesn't say what to source")
	}
	content, err := os.ReadFile(found[1])
	must(t, err)
	kubeconfig := ""
	for _, variable := range exported.FindAllStringSubmatch(string(content), -1) {
		if variable[1] == "KUBECONFIG" {
			kubeconfig = variable[2]
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	parts, err := stack.CommandParts()
	must(t, err)
	programs, err := stack.Build(t.Context(), os.Stderr, parts...)
	must(t, err)
	var paths []string
	for _, path := range programs {
		paths = append(paths, path)
	}
	// bash reads the file that BASH_ENV names before it runs a command.
	return &shell{t: t, env: append(pages.Terminal(t, paths...), "BASH_ENV="+found[1]), kubernetes: client}
}

// asks runs a command that answers in JSON.
func (o *shell) asks(command string, answer any) error {
	run := exec.CommandContext(o.t.Context(), "bash", "-c", command)
	run.Env = slices.Concat(os.Environ(), o.env)
	said, err := run.Output()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, said)
	}
	return json.Unmarshal(said, answer)
}

// eventually polls until met returns nil.
func (o *shell) eventually(what string, met func(context.Context) error) {
	o.t.Helper()
	const limit = time.Minute
	ctx := limited(o.t, limit)
	for {
		err := met(ctx)
		if err == nil {
			return
		}
		if !linger(ctx, askEvery) {
			o.t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
	}
}

// reports lets a Pod's status say this of its devices, as its kubelet would.
func (o *shell) reports(ctx context.Context, pod string, entries ...corev1.ResourceStatus) error {
	read, err := o.kubernetes.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if read.Status.Phase != corev1.PodRunning || len(read.Status.ContainerStatuses) != 1 {
		return fmt.Errorf("Pod %s is %s", pod, read.Status.Phase)
	}
	status := &read.Status.ContainerStatuses[0]
	if was, err := json.Marshal(status.AllocatedResourcesStatus); err != nil {
		return err
	} else if is, err := json.Marshal(entries); err != nil || string(was) == string(is) {
		return err
	}
	status.AllocatedResourcesStatus = entries
	_, err = o.kubernetes.CoreV1().Pods(namespace).UpdateStatus(ctx, read, metav1.UpdateOptions{})
	return err
}

func entry(claim string, devices ...corev1.ResourceHealth) corev1.ResourceStatus {
	return corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + claim), Resources: devices}
}

func health(id string, health corev1.ResourceHealthStatus, message string) corev1.ResourceHealth {
	reported := corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: health}
	if message != "" {
		reported.Message = &message
	}
	return reported
}

// moreFaults makes the two faults that docs/cli.md tells of: an Xid 48, and on a Pod
// with two devices an Xid 94 under an ID of the container runtime.
func (o *shell) moreFaults() {
	o.t.Helper()
	ctx := o.t.Context()
	claim := simnode.MakeClaim(namespace, "pair").Request("gpus", simnode.DefaultDriver, 2).Obj()
	_, err := o.kubernetes.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	must(o.t, err)
	pod := simnode.MakePod(namespace, "pair").Claim("gpus", "pair").OnNode(blipping).Obj()
	_, err = o.kubernetes.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	must(o.t, err)

	o.eventually("the two faults are told of", func(ctx context.Context) error {
		if err := o.reports(ctx, jobName(blipping, 0), entry("gpu",
			health("gpu.example.com/node-1/gpu-0", corev1.ResourceHealthStatusUnhealthy, "critical XID 48 reported by NVML"))); err != nil {
			return err
		}
		if err := o.reports(ctx, "pair", entry("gpus",
			health("k8s.gpu.example.com/claim=5f1c-a", corev1.ResourceHealthStatusUnhealthy, "critical XID 94 reported by NVML"),
			health("k8s.gpu.example.com/claim=5f1c-b", corev1.ResourceHealthStatusHealthy, ""))); err != nil {
			return err
		}
		var l listing.Listing
		if err := o.asks("sickbay devices -o json", &l); err != nil {
			return err
		}
		if len(l.Unmapped) == 0 {
			return fmt.Errorf("no unmapped fault")
		}
		var story listing.Story
		if err := o.asks("sickbay device gpu.example.com/node-1/gpu-0 -o json", &story); err != nil {
			return err
		}
		if c := story.Case; c == nil || c.Mark.State != quarantine.MarkInForce || c.Waiting != quarantine.WaitingForHolder || c.LookedAt.IsZero() {
			return fmt.Errorf("its case is %+v", c)
		}
		return nil
	})
}

// completes wants kubectl to complete the plugin's words, by the links that docs/cli.md
// makes. kubectl's own script for a shell asks just this way.
func (o *shell) completes() {
	o.t.Helper()
	run := exec.CommandContext(o.t.Context(), "bash", "-c", "kubectl __complete sickbay device gpu.example.com/node-1/")
	run.Env = slices.Concat(os.Environ(), o.env)
	said, err := run.Output()
	if err != nil {
		o.t.Fatal(err)
	}
	for i := range 4 {
		if want := fmt.Sprintf("gpu.example.com/node-1/gpu-%d", i); !strings.Contains(string(said), want) {
			o.t.Errorf("kubectl doesn't complete %s:\n%s", want, said)
		}
	}
}

// wantReadme wants the table of README.md to be one that the demo showed: of one
// moment, and with some of its rows left out.
func (r *running) wantReadme(t *testing.T) {
	t.Helper()
	root, err := checks.Root()
	must(t, err)
	path := filepath.Join(root, "README.md")
	readme, err := os.ReadFile(path)
	must(t, err)
	before, after, found := strings.Cut(string(readme), "```\nDEVICE ")
	table, after, closed := strings.Cut("DEVICE "+after, "\n```")
	rows := strings.Split(table, "\n")
	if !found || !closed || len(rows) < 2 {
		t.Fatalf("README.md has no table of devices: %q", table)
	}
	moments := stamp.Split(r.text(), -1)
	for _, moment := range slices.Backward(moments) {
		shown, ok := rowsOf(moment, rows)
		if !ok {
			continue
		}
		if *update {
			written := before + "```\n" + strings.Join(shown, "\n") + "\n```" + after
			must(t, os.WriteFile(path, []byte(written), 0o644))
		}
		return
	}
	t.Errorf("README.md shows\n%s\nand the demo never did; at last it showed\n%s", table, moments[len(moments)-1])
}

// rowsOf finds rows among the lines of one moment, but for what is masked.
func rowsOf(moment string, rows []string) (shown []string, ok bool) {
	lines := strings.Split(moment, "\n")
	for _, row := range rows {
		at := slices.IndexFunc(lines, func(line string) bool { return pages.Masked(line) == pages.Masked(row) })
		if at < 0 {
			return nil, false
		}
		shown = append(shown, lines[at])
	}
	return shown, true
}

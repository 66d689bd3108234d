package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// operator runs the command line as a person does: the real binary, under the
// name of a kubectl plugin too, on the stack's cluster and Temporal.
type operator struct {
	*cluster
	binary, plugin, completion string
	// env are variables of its commands, beside those that lead to the stack.
	env []string
}

func (c *cluster) operator() *operator {
	c.t.Helper()
	binary, err := product.Shared()
	if err != nil {
		c.t.Fatal(err)
	}
	folder := c.t.TempDir()
	o := &operator{
		cluster: c, binary: binary,
		plugin: filepath.Join(folder, "kubectl-sickbay"), completion: filepath.Join(folder, "kubectl_complete-sickbay"),
	}
	for _, link := range []string{o.plugin, o.completion} {
		if err := os.Symlink(binary, link); err != nil {
			c.t.Fatal(err)
		}
	}
	return o
}

// answer is what a command line did.
type answer struct {
	code     int
	out, err string
}

// first and last are the lines that an operator reads first and last.
func (a answer) first() string { first, _, _ := strings.Cut(a.out, "\n"); return first }
func (a answer) last() string {
	lines := strings.Split(strings.TrimSpace(a.out), "\n")
	return lines[len(lines)-1]
}

func (o *operator) types(program string, args ...string) answer {
	o.t.Helper()
	command := exec.CommandContext(o.t.Context(), program, args...)
	command.Env = append(append(os.Environ(), product.Environment(o.stack)...), "SICKBAY_TEMPORAL_UI="+o.stack.TemporalUI())
	command.Env = append(command.Env, o.env...)
	var out, failed bytes.Buffer
	command.Stdout, command.Stderr = &out, &failed
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		o.t.Fatal(err)
	}
	return answer{code: command.ProcessState.ExitCode(), out: out.String(), err: failed.String()}
}

// wants checks an answer's exit code and that it says all of these.
func (o *operator) wants(what string, a answer, code int, said ...string) {
	o.t.Helper()
	if a.code != code {
		o.t.Errorf("%s: exit code %d, want %d", what, a.code, code)
	}
	for _, want := range said {
		if !strings.Contains(a.out+a.err, want) {
			o.t.Errorf("%s doesn't say %q", what, want)
		}
	}
	if o.t.Failed() {
		o.t.Fatalf("%s said\n%s%s", what, a.out, a.err)
	}
}

func (o *operator) story(key device.Key) listing.Story {
	o.t.Helper()
	a := o.types(o.binary, "device", key.String(), "-o", "json")
	var story listing.Story
	if err := json.Unmarshal([]byte(a.out), &story); err != nil {
		o.t.Fatalf("device -o json: %v\n%s%s", err, a.out, a.err)
	}
	return story
}

// cliScene is a cluster with all that the command line has words for.
type cliScene struct {
	*operator
	// sick is quarantined and held by train-0; well is held by train-1.
	sick, well device.Key
	state      quarantine.Case
}

func startCLI(t *testing.T) *cliScene {
	t.Helper()
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 3)
	c.sickbay()
	s := &cliScene{operator: c.operator()}
	s.sick, s.well = c.runPod("train-0"), c.runPod("train-1")
	c.set(s.sick, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitInForce(s.sick)
	s.state = c.awaitCase(s.sick, "knows its holder and announced its mark", func(k quarantine.Case) error {
		if len(k.Holders) != 1 || k.Waiting != quarantine.WaitingForHolder || len(k.Notices) > 0 {
			return fmt.Errorf("%s, holders %v, %d notices", k.Waiting, k.Holders, len(k.Notices))
		}
		return nil
	})
	return s
}

// From the table to the story of one device and to its Pod, an operator finds
// what is wrong, why, since when, by whom and what happens next; what isn't there
// is refused with what was probably meant.
func TestAnOperatorFindsOutWhatIsWrongFromTheCommandLine(t *testing.T) {
	s := startCLI(t)
	sick := s.sick.String()

	t.Run("the table narrows, sorts and counts", func(t *testing.T) {
		s.wants("devices", s.types(s.binary, "devices"), 0, "3 devices: 1 Quarantined, 2 without a case")
		for _, filter := range [][]string{
			{"--phase", "quarantined"}, {"--reason", "Xid*"}, {"--faulty"}, {"--class", simnode.DefaultDriver, "--phase", "Quarantined"}, {"--node", "node-*", "--faulty"},
		} {
			if got := s.types(s.binary, append([]string{"devices", "-o", "name"}, filter...)...); got.out != sick+"\n" || got.code != 0 {
				t.Errorf("%v: %d %q %q, want %s", filter, got.code, got.out, got.err, sick)
			}
		}
		free := s.types(s.binary, "devices", "-o", "json", "--class", simnode.DefaultDriver)
		var l listing.Listing
		if err := json.Unmarshal([]byte(free.out), &l); err != nil || len(l.Devices) != 3 {
			t.Errorf("class %s has %d devices, %v; want all 3, the one that nobody holds too", simnode.DefaultDriver, len(l.Devices), err)
		}
		if got := s.types(s.binary, "devices", "--sort-by", "phase", "-o", "name"); !strings.HasPrefix(got.out, sick+"\n") {
			t.Errorf("sorted by phase: %q, want %s first", got.out, sick)
		}
		s.wants("a reason misspelt", s.types(s.binary, "devices", "--reason", "XidFalenOffBus"), 0, "did you mean XidFallenOffBus?")
	})

	t.Run("the story has it all", func(t *testing.T) {
		told := s.types(s.plugin, "device", sick)
		s.wants("kubectl sickbay device", told, 0,
			"default/train-0: main ready", "business objective  not configured", "Unhealthy: "+fallenOff,
			"XidFallenOffBus (fatal), closed by repair; rule nvidia/xid-79", s.state.Mark.Name+" in force since",
			"CaseOpened", "MarkInForce", s.stack.TemporalUI()+"/namespaces/"+s.stack.TemporalNamespace()+"/workflows/device%2F")
		if want := sick + " is out of service: XidFallenOffBus (fatal), Quarantined"; !strings.HasPrefix(told.first(), want) {
			t.Errorf("the first line is %q, want %s …", told.first(), want)
		}
		if want := "Next: a holder has to leave; an operator may delete its Pod ("; !strings.HasPrefix(told.last(), want) {
			t.Errorf("the last line is %q, want %s…", told.last(), want)
		}
		story := s.story(s.sick)
		if len(story.Evidence) != 1 || story.Evidence[0].Version != s.state.Reports[0].Version || story.Evidence[0].Observed == nil {
			t.Errorf("evidence %+v, want the case's status version %s with its age", story.Evidence, s.state.Reports[0].Version)
		}
		if story.MarkFound == nil || story.MarkFound.Epoch != s.state.Epoch || story.Case == nil || story.Case.Actor != "sickbay" {
			t.Errorf("mark %+v, case %+v; want those of epoch %d", story.MarkFound, story.Case, s.state.Epoch)
		}
		if a := story.Signals.Allocation; len(a) != 1 || a[0].Claim != "default/train-0" || a[0].Class != simnode.DefaultDriver {
			t.Errorf("allocation %+v, want claim default/train-0", a)
		}
	})

	t.Run("an operator's word shows with its author", func(t *testing.T) {
		if _, err := s.cases.Send(t.Context(), s.sick, quarantine.Message{Verb: quarantine.VerbExtend, Actor: "oncall@example.com", Reason: "a spare is on its way"}); err != nil {
			t.Fatal(err)
		}
		s.eventually("the word is in the story's timeline", 20*time.Second, func(context.Context) error {
			told := s.types(s.binary, "device", sick)
			if !strings.Contains(told.out, "extend by oncall@example.com") || !strings.Contains(told.out, "OperatorMessage") {
				return fmt.Errorf("said\n%s", told.out)
			}
			return nil
		})
	})

	t.Run("the Pod's devices are shown", func(t *testing.T) {
		told := s.types(s.plugin, "pod", "train-0", "-n", "default")
		s.wants("kubectl sickbay pod", told, 0, sick, "Quarantined", fallenOff)
		if want := "default/train-0 has 1 device, of which 1 faulty: " + sick; !strings.HasPrefix(told.first(), want) {
			t.Errorf("the first line is %q, want %s …", told.first(), want)
		}
		if want := "Next: " + sick + ": a holder has to leave"; !strings.HasPrefix(told.last(), want) {
			t.Errorf("the last line is %q, want %s …", told.last(), want)
		}
		s.wants("a Pod that is well", s.types(s.binary, "pod", "default/train-1"), 0, "none of them known to be faulty", "Next: nothing; it is nobody's turn")
	})

	t.Run("what isn't there is refused with what was meant", func(t *testing.T) {
		node := s.sick.Driver + "/" + s.sick.Pool
		s.wants("a device that isn't", s.types(s.binary, "device", node+"/gpu-9"), 4, "no device is called "+node+"/gpu-9", "did you mean "+node+"/gpu-0")
		s.wants("a key that misses a part", s.types(s.plugin, "device", node), 2, "lacks a part", node+"/gpu-0")
		s.wants("a Pod that isn't", s.types(s.binary, "pod", "default/train-00"), 4, "there is no Pod default/train-00; did you mean train-0?")
		web := simnode.MakePod("default", "web").Obj()
		if _, err := s.kube.CoreV1().Pods("default").Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.nodes.AwaitPod(t.Context(), "default", "web", simnode.Running); err != nil {
			t.Fatal(err)
		}
		s.wants("a Pod without devices", s.types(s.binary, "pod", "default/web"), 4, "Pod default/web has no devices: it has no ResourceClaim", "Pods with devices in default: train-0 or train-1")
	})

	t.Run("names are completed from the cluster", func(t *testing.T) {
		s.wants("kubectl's completion of a device", s.types(s.completion, "device", "gpu.example.com/"), 0, sick+"\n", s.well.String()+"\n")
		s.wants("completion of a Pod", s.types(s.completion, "pod", "tr"), 0, "train-0\n", "train-1\n")
		s.wants("completion of a class", s.types(s.binary, "__complete", "devices", "--class", ""), 0, simnode.DefaultDriver+"\n")
	})
}

// A case that is over is still told of: what was decided stays in Temporal.
func TestTheStoryOfACaseThatIsOverIsStillThere(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	c.sickbay()
	o := c.operator()
	key := c.runPod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnknown, "")
	c.awaitCase(key, "suspect", func(k quarantine.Case) error {
		if k.Phase != quarantine.PhaseSuspect {
			return fmt.Errorf("%s", k.Phase)
		}
		return nil
	})
	o.wants("a suspect", o.types(o.binary, "device", key.String()), 0, key.String()+" is suspect, and not kept out: HealthUnknown", "Next: its health comes back, or the grace window ends")
	c.set(key, corev1.ResourceHealthStatusHealthy, "")
	c.eventually("the case is over", 30*time.Second, func(ctx context.Context) error {
		running, err := c.cases.Running(ctx, key)
		if err == nil && running {
			return errors.New("still open")
		}
		return err
	})
	c.eventually("the list of open workflows says so too", 20*time.Second, func(context.Context) error {
		if story := o.story(key); story.Device.Workflow != "" {
			return fmt.Errorf("workflow %s", story.Device.Workflow)
		}
		return nil
	})
	o.wants("a device whose case is over", o.types(o.binary, "device", key.String()), 0,
		key.String()+" is well: reported Healthy, and without a case.", "CaseOpened", "CaseClosed", "Next: nothing; it is nobody's turn")
}

// Without a worker, and then without Temporal, the commands say what they know and
// what they lack, by exit code 3. That no starter leads stands above each answer.
// O7: what the cluster says then isn't what somebody watches.
func TestTheCommandLineAnswersWithoutWorkersAndWithoutTemporal(t *testing.T) {
	s := startCLI(t)
	s.kill("starter")
	s.kill("worker")
	s.wants("device without a worker", s.types(s.binary, "device", s.sick.String()), 3,
		"Quarantined, waiting for ?", "CaseOpened", "MarkInForce", "Next: not known, because no worker answers", "no worker answers, so cases show what they last wrote down")
	s.kill("temporal")
	told := s.types(s.binary, "device", s.sick.String())
	s.wants("device without Temporal", told, 3,
		s.sick.String()+" is out of service: XidFallenOffBus (fatal), Quarantined", "(told by its mark)", s.state.Mark.Name+" is in the cluster as Sickbay wrote it",
		"Unhealthy: "+fallenOff, "Next: not known without Temporal", "Temporal is away, so phases come from the marks alone")
	s.wants("pod without Temporal", s.types(s.binary, "pod", "default/train-0"), 3, "is out of service", "Temporal is away")
	s.wants("a device that isn't, without Temporal", s.types(s.binary, "device", "gpu.example.com/node-0/gpu-9"), 4, "whether it has a case can't be told without Temporal")
	s.wants("counts without Temporal", s.types(s.binary, "devices", "--counts"), 3, "Quarantined  1", "Temporal is away")

	const nobody = "sickbay: Sickbay itself can't see: no starter leads since "
	s.eventually("each command says that nobody watches", 30*time.Second, func(context.Context) error {
		for _, command := range [][]string{{"devices"}, {"device", s.sick.String()}, {"pod", "default/train-0"}} {
			if a := s.types(s.binary, command...); !strings.HasPrefix(a.err, nobody) || !strings.Contains(a.err, "when Lease sickbay/sickbay-starter was last renewed") {
				return fmt.Errorf("%v said %q", command, a.err)
			}
		}
		return nil
	})
	if story := s.story(s.sick); len(story.Blind) != 1 {
		s.t.Errorf("the story as JSON says %q of what Sickbay can't see", story.Blind)
	}
}

// Entries that lead to no one device have a listing of their own, and show with
// their Pod; a device plugin's device is told of by its key and by its workflow.
func TestUnmappedEntriesAndPluginDevicesAreToldOf(t *testing.T) {
	const resource = "plugin.example.com/gpu"
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 0, 0)
	c.nodes = simnode.Start(t, c.stack.SimulatorConfig(), simnode.Options{HeartbeatEvery: time.Second})
	err := c.nodes.Add(t.Context(), simnode.Node{
		Name: "node-0", Pools: []simnode.Pool{{Devices: simnode.MakeDevices(2), CDI: simnode.CDIClaim}},
		Plugins: []simnode.Plugin{{Resource: resource, IDs: []string{"GPU-0"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.sickbay()
	o := c.operator()
	claim := simnode.MakeClaim("default", "pair").Request("gpus", simnode.DefaultDriver, 2).Obj()
	if _, err := c.kube.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := simnode.MakePod("default", "train").Claim("gpus", "pair").Resource(resource, 1).Obj()
	if _, err := c.kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.nodes.AwaitPod(t.Context(), "default", "train", simnode.Running); err != nil {
		t.Fatal(err)
	}
	if _, err := c.nodes.Set(t.Context(), "node-0", "gpu-0", corev1.ResourceHealthStatusUnhealthy, fallenOff); err != nil {
		t.Fatal(err)
	}
	o.wants("devices", o.types(o.binary, "devices"), 0, "1 unmapped fault: health entries that lead to no one device; --unmapped lists them")
	o.wants("devices --unmapped", o.types(o.binary, "devices", "--unmapped"), 0, "default/train", "SeveralDevices", "gpu.example.com/node-0/gpu-0,gpu.example.com/node-0/gpu-1")
	told := o.types(o.binary, "pod", "default/train")
	o.wants("pod", told, 0, "1 faulty health entry can't be attributed to one device", "SeveralDevices", "node-0|"+resource+"|GPU-0")
	if !strings.HasPrefix(told.last(), "Next: unmapped entries: your turn;") {
		t.Errorf("the last line is %q, want that it is the reader's turn", told.last())
	}
	o.wants("device of which nothing is certain", o.types(o.binary, "device", "gpu.example.com/node-0/gpu-1"), 0,
		"gpu.example.com/node-0/gpu-1 has no case; none of its holders reports on it; 1 unmapped fault may be about it.", "not reported by its holders")

	key, err := device.NewPlugin("node-0", resource, "GPU-0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.nodes.SetPlugin(t.Context(), "node-0", resource, "GPU-0", corev1.ResourceHealthStatusUnhealthy); err != nil {
		t.Fatal(err)
	}
	c.awaitCase(key, "advisory", func(k quarantine.Case) error {
		if k.Mark.State != quarantine.MarkAdvisory {
			return fmt.Errorf("mark %s", k.Mark.State)
		}
		return nil
	})
	for _, name := range []string{key.String(), devicewf.ID(key)} {
		told := o.types(o.binary, "device", name)
		o.wants("device "+name, told, 0, key.String()+" is faulty, and can't be kept out", "none: advisory only", "to default/train, as its status says")
	}
	if got := o.types(o.binary, "devices", "--class", resource, "-o", "name"); got.out != key.String()+"\n" {
		t.Errorf("class %s has %q, want %s", resource, got.out, key)
	}
}

// Who may read all but DeviceClasses gets a whole answer, unless a class is asked
// for; who may not read the marks is told what the answer lacks. The rights are
// those that docs/cli.md lists.
func TestTheCommandLineLivesWithItsUsersRights(t *testing.T) {
	s := startCLI(t)
	kubeconfig, err := s.stack.UserKubeconfig("oncall")
	if err != nil {
		t.Fatal(err)
	}
	rules := func(resources ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
			{APIGroups: []string{"resource.k8s.io"}, Resources: resources, Verbs: []string{"list"}},
		}
	}
	types := func(args ...string) answer {
		t.Helper()
		return s.types(s.binary, append(args, "--kubeconfig", kubeconfig)...)
	}
	s.grantRules("oncall", rules("resourceslices", "resourceclaims", "devicetaintrules"))
	s.eventually("the rights are in force", 20*time.Second, func(context.Context) error {
		if a := types("devices", "-o", "name"); a.code != 0 {
			return fmt.Errorf("exit code %d: %s", a.code, a.err)
		}
		return nil
	})
	s.wants("a class without the right to read classes", types("devices", "--class", simnode.DefaultDriver), 3, "DeviceClasses can't be read", s.sick.String())
	s.wants("a device without that right", types("device", s.sick.String()), 0, "is out of service", "default/train-0: main ready")
	s.wants("a Pod without that right", types("pod", "default/train-0"), 0, "is out of service")
	s.grantRules("oncall", rules("resourceslices", "resourceclaims", "deviceclasses"))
	s.eventually("the right to read marks is gone", 20*time.Second, func(context.Context) error {
		if a := types("devices"); a.code != 3 || !strings.Contains(a.err, "DeviceTaintRules can't be read, so marks are missing") {
			return fmt.Errorf("exit code %d: %s", a.code, a.err)
		}
		return nil
	})
	s.grantRules("oncall", rules("resourceslices", "resourceclaims", "deviceclasses", "devicetaintrules"))
	s.eventually("the right to read all is there", 20*time.Second, func(context.Context) error {
		if a := types("devices", "--class", simnode.DefaultDriver, "-o", "name"); a.code != 0 || strings.Count(a.out, "\n") != 3 {
			return fmt.Errorf("exit code %d: %s%s", a.code, a.out, a.err)
		}
		return nil
	})
	s.viewer()
}

// viewer runs the commands for people that ask a cluster with the role that is shipped for them: nothing
// is refused, and nothing in it is left unused.
func (s *cliScene) viewer() {
	s.t.Helper()
	const user, role = "viewer", "sickbay-viewer"
	if _, err := s.kube.RbacV1().ClusterRoleBindings().Create(s.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	kubeconfig, err := s.stack.UserKubeconfig(user)
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the role is in force", 20*time.Second, func(context.Context) error {
		if a := s.types(s.binary, "devices", "--kubeconfig", kubeconfig); a.code != 0 {
			return fmt.Errorf("exit code %d: %s", a.code, a.err)
		}
		return nil
	})
	before, err := s.stack.Calls(user)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, command := range [][]string{
		{"devices", "--class", simnode.DefaultDriver}, {"device", s.sick.String()}, {"pod", "default/train-0"},
	} {
		s.wants(strings.Join(command, " "), s.types(s.binary, append(command, "--kubeconfig", kubeconfig)...), 0)
	}
	// They come to the end of what they read, whatever that says of this cluster.
	s.wants("watch manifests", s.types(s.binary, "watch", "manifests", "--driver", simnode.DefaultDriver, "--kubeconfig", kubeconfig), 0, "kind: DaemonSet")
	s.wants("watch check", s.types(s.binary, "watch", "check", "--driver", simnode.DefaultDriver, "--kubeconfig", kubeconfig), 1, "no watch Pod")
	if err := s.stack.StartProcess(s.t.Context(), stack.Process{
		Name: "viewing", Path: s.binary, Args: []string{"devices", "--watch", "--kubeconfig", kubeconfig}, Env: product.Environment(s.stack),
	}); err != nil {
		s.t.Fatal(err)
	}
	objects, err := deploy.Rights(s.t.Context(), deploy.Overlay{})
	if err != nil {
		s.t.Fatal(err)
	}
	granted, err := deploy.RoleRights(objects, role)
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("each of its rights is used", 20*time.Second, func(context.Context) error {
		made, err := s.stack.Calls(user)
		if err != nil {
			return err
		}
		used := deploy.RightSet{}
		for _, call := range made[len(before):] {
			if call.Code == http.StatusForbidden {
				s.t.Errorf("it lacks the right to %s", call)
			}
			used[deploy.Right{Group: call.APIGroup, Resource: call.Resource, Subresource: call.Subresource, Verb: call.Verb}] = true
		}
		for _, right := range granted.Sorted() {
			asked := right
			asked.Name = "" // of a call the log has no name
			if !used[asked] {
				return fmt.Errorf("it may %s, and never did", right)
			}
		}
		return nil
	})
	if err := s.stack.StopPart(s.t.Context(), "viewing"); err != nil {
		s.t.Error(err)
	}
}

// A table that goes on showing says so when the API server is away: a watch whose
// connection is refused is tried again without a word.
func TestATableThatIsWatchedSaysThatTheAPIServerIsAway(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 1)
	binary, err := product.Shared()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.stack.StartProcess(t.Context(), stack.Process{
		Name: "watching", Path: binary, Args: []string{"devices", "--watch"}, Env: product.Environment(c.stack),
	}); err != nil {
		t.Fatal(err)
	}
	shows := func(what, text string) {
		t.Helper()
		c.eventually(what, 40*time.Second, func(context.Context) error {
			if said := c.lastLines("watching", 8); !strings.Contains(said, text) {
				return fmt.Errorf("it shows\n%s", said)
			}
			return nil
		})
	}
	shows("the table is there", "gpu.example.com/node-0/gpu-0")

	// An Unknown is told from one of a driver that never said anything, as soon as
	// starters write down which drivers did.
	c.runPod("train-0")
	if _, err := c.nodes.Silence(t.Context(), "node-0"); err != nil {
		t.Fatal(err)
	}
	shows("an Unknown", "Unknown")
	known := c.kube.CoreV1().ConfigMaps("default")
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "sickbay-starter-known"}, Data: map[string]string{"nic.example.com": "node-0\n"}}
	if _, err := known.Create(t.Context(), written, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shows("that its driver isn't one of them", listing.Unmonitored)
	written.Data[simnode.DefaultDriver] = "node-0\n"
	if _, err := known.Update(t.Context(), written, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("that it is one now", 40*time.Second, func(context.Context) error {
		if said := c.lastLines("watching", 3); strings.Contains(said, listing.Unmonitored) || !strings.Contains(said, "Unknown") {
			return fmt.Errorf("it shows\n%s", said)
		}
		return nil
	})
	c.kill("apiserver")
	shows("it says that what it shows may be old", "the API server doesn't answer")
}

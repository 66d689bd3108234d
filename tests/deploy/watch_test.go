package deploy_test

// This file has watch Pods made on real control planes, and refused, and holds Sickbay's
// accounts to what they may do to them. Nodes have no kubelet here; tests/kubelet shows
// what one reports.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

func TestMain(m *testing.M) { product.Main(m) }

// watching is a cluster with nodes, and the command.
type watching struct {
	*testing.T
	stack   *stack.Stack
	client  kubernetes.Interface
	kubectl deploy.Kubectl
	binary  string
}

// Both versions take what `sickbay watch manifests` writes, and it refuses what they say
// of devices that must not be watched, each in its own fields. Whatever runs as Sickbay
// changes nothing of a watch Pod but its deadline, and nothing of a node but what isolates
// it, and makes no claims and Jobs but those of attempts at recovery. Proves a part of O11, and of Q2.
func TestWhateverRunsAsSickbayOnlyPokesWatchPods(t *testing.T) {
	binary, err := product.Shared()
	must(t, err)
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			st := stack.Start(t, stack.Options{Kubernetes: version, Provokes: true})
			kubectl, err := deploy.FindKubectl(t.Context(), st.Kubeconfig())
			must(t, err)
			accounts, err := deploy.Grant(t.Context(), st, deploy.Enforce, deploy.Watch, deploy.NodeIsolation)
			must(t, err)
			w := &watching{T: t, stack: st, client: kubernetes.NewForConfigOrDie(st.RESTConfig()), kubectl: kubectl, binary: binary}
			for _, name := range []string{"bare", "gpu-1", "gpu-2"} {
				w.node(name)
			}
			w.refuses(version)
			w.publish("gpu.example.com", "gpu-1", "")
			w.publish("gpu.example.com", "gpu-2", "")
			pod := w.makes()
			w.checks(pod)
			w.holdsTo(accounts, pod)
			w.onlyIsolates(accounts.Worker)
			w.onlyMakesProbes(accounts.Worker)
		})
	}
}

// run runs `sickbay watch …`.
func (w *watching) run(args ...string) (out, failed string, code int) {
	w.Helper()
	command := exec.CommandContext(w.Context(), w.binary, append([]string{"watch"}, args...)...)
	command.Env = append(os.Environ(), "SICKBAY_KUBECONFIG="+w.stack.Kubeconfig())
	var said, told bytes.Buffer
	command.Stdout, command.Stderr = &said, &told
	err := command.Run()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		return said.String(), told.String(), exit.ExitCode()
	}
	must(w.T, err)
	return said.String(), told.String(), 0
}

func (w *watching) node(name string) {
	w.Helper()
	labels := map[string]string{"kubernetes.io/hostname": name}
	if strings.HasPrefix(name, "gpu") {
		labels["example.com/gpus"] = "2"
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	_, err := w.client.CoreV1().Nodes().Create(w.Context(), node, metav1.CreateOptions{})
	must(w.T, err)
	// From 1.37 on a node has to declare it before a driver may say what its devices take.
	status := `{"status":{"declaredFeatures":["DRANodeAllocatableResources"],"allocatable":{"cpu":"8","memory":"32Gi","pods":"110"},"capacity":{"cpu":"8","memory":"32Gi","pods":"110"}}}`
	_, err = w.client.CoreV1().Nodes().Patch(w.Context(), name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	must(w.T, err)
}

// publish applies a slice of two devices, the second with a further field.
func (w *watching) publish(driver, node, field string) {
	w.Helper()
	slice := fmt.Sprintf(`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"%s.%s"},"spec":{"driver":%q,"nodeName":%q,
		"pool":{"name":%q,"generation":1,"resourceSliceCount":1},"devices":[{"name":"gpu-0"},{"name":"gpu-1"%s}]}}`, driver, node, driver, node, node, field)
	class := fmt.Sprintf(`{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","metadata":{"name":%q},"spec":{"selectors":[{"cel":{"expression":"device.driver == '%s'"}}]}}`, driver, driver)
	for i, object := range []string{slice, class} {
		path := filepath.Join(w.TempDir(), fmt.Sprintf("object-%d.json", i))
		must(w.T, os.WriteFile(path, []byte(object), 0o600))
		_, _, err := w.kubectl.Run(w.Context(), "apply", "--server-side", "--validate=strict", "-f", path)
		must(w.T, err)
	}
}

// refuses has the command refuse drivers by what they publish.
func (w *watching) refuses(version string) {
	w.Helper()
	mapping := `,"nodeAllocatableResources":{"memory":{"mapping":{"deviceMultiplier":"2Gi"}}}`
	if version == "1.36" {
		mapping = `,"nodeAllocatableResourceMappings":{"memory":{"allocationMultiplier":"2Gi"}}`
	}
	for driver, c := range map[string]struct{ field, why string }{
		"mapped.example.com": {mapping, "takes memory of its node when it is allocated"},
		"shared.example.com": {`,"allowMultipleAllocations":true`, "can be allocated several times over"},
		"part.example.com":   {`,"attributes":{"parentUUID":{"string":"GPU-1"}}`, "is a part of a chip"},
	} {
		w.publish(driver, "gpu-1", c.field)
		out, failed, code := w.run("manifests", "--driver", driver, "--node-selector", "kubernetes.io/hostname=gpu-1")
		want := fmt.Sprintf("device %s/gpu-1/gpu-1 (ResourceSlice %s.gpu-1) %s", driver, driver, c.why)
		if code != 1 || out != "" || !strings.Contains(failed, want) || !strings.Contains(failed, "Leave such nodes out") || strings.Contains(failed, "gpu-1/gpu-0") {
			w.Errorf("%s: exit code %d, wrote %q, said %q; want %q and nothing of gpu-0", driver, code, out, failed, want)
		}
	}
	if _, failed, code := w.run("manifests"); code != 2 || !strings.Contains(failed, "--driver is missing") {
		w.Errorf("without a driver: exit code %d, %q", code, failed)
	}
	if _, failed, code := w.run("manifests", "--driver", "none.example.com"); code != 1 || !strings.Contains(failed, "there is no DeviceClass none.example.com") {
		w.Errorf("without a class: exit code %d, %q", code, failed)
	}
}

// makes applies what the command writes, and returns a watch Pod that the scheduler gave
// its devices.
func (w *watching) makes() *corev1.Pod {
	w.Helper()
	if _, failed, code := w.run("manifests", "--driver", "gpu.example.com"); code != 1 ||
		!strings.Contains(failed, "node bare without a device") || !strings.Contains(failed, "--node-selector example.com/gpus=2") {
		w.Errorf("with a node that has none: exit code %d, %q; want the label that tells them apart", code, failed)
	}
	for _, form := range [][]string{{}, {"--request-per-device", "2", "--name", "watch-each"}} {
		apply := []string{"apply", "--server-side", "--validate=strict", "--force-conflicts", "-f"}
		if len(form) > 0 {
			// The API lets a container name several requests of one claim, and server-side
			// apply takes claim's name for the key.
			apply = []string{"apply", "--validate=strict", "-f"}
		}
		out, failed, code := w.run(append([]string{"manifests", "--driver", "gpu.example.com", "--node-selector", "example.com/gpus=2"}, form...)...)
		if code != 0 {
			w.Fatalf("exit code %d: %s", code, failed)
		}
		path := filepath.Join(w.TempDir(), "watch.yaml")
		must(w.T, os.WriteFile(path, []byte(out), 0o600))
		_, warned, err := w.kubectl.Run(w.Context(), append(apply, path)...)
		if err != nil || strings.Contains(warned, "duplicate") {
			w.Fatalf("%v, warned %q, of\n%s", err, warned, out)
		}
	}
	var found *corev1.Pod
	w.eventually("each set has a Pod on both nodes, with all their devices", func(ctx context.Context) error {
		pods, err := w.client.CoreV1().Pods("sickbay-watch").List(ctx, metav1.ListOptions{LabelSelector: kube.WatchLabel + "=gpu.example.com"})
		if err != nil {
			return err
		}
		had := map[string]int{}
		for _, pod := range pods.Items {
			for _, name := range kube.PodView(&pod).ClaimNames() {
				claim, err := w.client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				for _, result := range kube.ClaimView(claim).Results {
					if result.AdminAccess {
						had[pod.Labels["app.kubernetes.io/instance"]+" "+pod.Spec.NodeName+" "+result.Device.Device]++
					}
				}
			}
			if pod.Labels["app.kubernetes.io/instance"] == "watch-gpu-example-com" && pod.Spec.NodeName == "gpu-1" {
				found = &pod
			}
		}
		for _, instance := range []string{"watch-gpu-example-com", "watch-each"} {
			for _, at := range []string{"gpu-1 gpu-0", "gpu-1 gpu-1", "gpu-2 gpu-0", "gpu-2 gpu-1"} {
				if had[instance+" "+at] != 1 {
					return fmt.Errorf("%s has %s %d times, of %v", instance, at, had[instance+" "+at], had)
				}
			}
		}
		return nil
	})
	_, _, err := w.kubectl.Run(w.Context(), "--namespace", "sickbay-watch", "rollout", "restart", "daemonset", "watch-each")
	must(w.T, err)
	must(w.T, w.client.AppsV1().DaemonSets("sickbay-watch").Delete(w.Context(), "watch-each", metav1.DeleteOptions{}))
	return found
}

// checks has `watch check` name what isn't covered, and why.
func (w *watching) checks(pod *corev1.Pod) {
	w.Helper()
	running := `{"status":{"phase":"Running","containerStatuses":[{"name":"watch","image":"x","imageID":"x","containerID":"x","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},
		"allocatedResourcesStatus":[{"name":"claim:devices","resources":[{"resourceID":"gpu.example.com/gpu-1/gpu-0","health":"Healthy"},{"resourceID":"gpu.example.com/gpu-1/gpu-1","health":"Healthy"}]}]}]}}`
	_, err := w.client.CoreV1().Pods(pod.Namespace).Patch(w.Context(), pod.Name, types.StrategicMergePatchType, []byte(running), metav1.PatchOptions{}, "status")
	must(w.T, err)
	slice, err := w.client.ResourceV1().ResourceSlices().Get(w.Context(), "gpu.example.com.gpu-1", metav1.GetOptions{})
	must(w.T, err)
	slice.Spec.Devices = []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-2"}}
	slice.Spec.Pool.Generation++
	_, err = w.client.ResourceV1().ResourceSlices().Update(w.Context(), slice, metav1.UpdateOptions{})
	must(w.T, err)
	out, failed, code := w.run("check", "--driver", "gpu.example.com")
	for _, want := range []string{
		pod.Name + ": reports on 1 of 2 devices",
		"not in the claim, since they were published after it was allocated: gpu-2",
		"in the claim, and not published any more: gpu-1",
		"rollout restart daemonset --selector sickbay.dev/watch=gpu.example.com",
		"no device is held and watched at once", "Try it on a node that nobody uses",
	} {
		if code != 1 || !strings.Contains(out, want) {
			w.Errorf("exit code %d, %s; want %q in\n%s", code, failed, want, out)
		}
	}
}

// holdsTo has each account try what it must not do to watch Pods, and what it may.
func (w *watching) holdsTo(accounts *deploy.Accounts, pod *corev1.Pod) {
	w.Helper()
	stranger := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: pod.Namespace, Labels: map[string]string{kube.WatchLabel: "gpu.example.com"}},
		Spec:       *pod.Spec.DeepCopy(),
	}
	stranger.Spec.ResourceClaims, stranger.Spec.Containers[0].Resources.Claims = nil, nil
	stranger.Spec.ServiceAccountName, stranger.Spec.DeprecatedServiceAccount = "", ""
	_, err := w.client.CoreV1().Pods(pod.Namespace).Create(w.Context(), stranger, metav1.CreateOptions{})
	must(w.T, err)
	for _, account := range []deploy.Account{accounts.Starter, accounts.Worker} {
		client := kubernetes.NewForConfigOrDie(account.Config)
		try := func(name, patch string) error {
			form := types.StrategicMergePatchType
			if strings.HasPrefix(patch, "[") {
				form = types.JSONPatchType
			}
			_, err := client.CoreV1().Pods(pod.Namespace).Patch(w.Context(), name, form, []byte(patch), metav1.PatchOptions{})
			return err
		}
		// A policy is in force up to a second after it is made.
		w.eventually("an image can't be changed", func(context.Context) error {
			if err := try(pod.Name, `{"spec":{"activeDeadlineSeconds":1500000000,"containers":[{"name":"watch","image":"registry.example.com/evil"}]}}`); !refusedBy(err, "neither its image nor its tolerations") {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		})
		for what, c := range map[string]struct{ name, patch, why string }{
			"end it":                {pod.Name, `{"spec":{"activeDeadlineSeconds":5}}`, "below 1000000000 s"},
			"give it another label": {pod.Name, `{"metadata":{"labels":{"a":"b"}},"spec":{"activeDeadlineSeconds":1500000000}}`, "none of its metadata"},
			"let it stay elsewhere": {pod.Name, `[{"op":"add","path":"/spec/activeDeadlineSeconds","value":1500000000},{"op":"add","path":"/spec/tolerations/-","value":{"key":"x","operator":"Exists"}}]`, "neither its image nor its tolerations"},
			"poke another Pod":      {stranger.Name, `{"spec":{"activeDeadlineSeconds":1999999999}}`, "a DaemonSet as owner"},
		} {
			if err := try(c.name, c.patch); !refusedBy(err, c.why) {
				w.Errorf("%s may %s: %v", account.User, what, err)
			}
		}
		if _, err := client.CoreV1().Pods("default").Patch(w.Context(), "any", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			w.Errorf("%s may patch Pods elsewhere: %v", account.User, err)
		}
		// No kubelet answers here; the poke itself is let through, once for each account.
		before, err := w.client.CoreV1().Pods(pod.Namespace).Get(w.Context(), pod.Name, metav1.GetOptions{})
		must(w.T, err)
		poker := kube.NewPoker(client, pod.Namespace)
		generation, err := poker.Poke(w.Context(), before)
		if err != nil || generation != before.Generation+1 {
			w.Errorf("%s pokes: generation %d, then %d, %v", account.User, before.Generation, generation, err)
		}
		if _, err := poker.Poke(w.Context(), before); !errors.Is(err, kube.ErrPokedMeanwhile) {
			w.Errorf("a poke of what another poked first: %v", err)
		}
	}
	key, err := device.NewDRA("gpu.example.com", "gpu-1", "gpu-0")
	must(w.T, err)
	poker := kube.NewPoker(kubernetes.NewForConfigOrDie(accounts.Worker.Config), pod.Namespace)
	if poked := poker.Device(w.Context(), key, "gpu-1"); len(poked.Acknowledged) != 0 || !strings.Contains(poked.Says, "didn't answer") {
		w.Errorf("poked %+v; want a kubelet that doesn't answer", poked)
	}
	if poked := poker.Device(w.Context(), key, "bare"); len(poked.Acknowledged) != 0 || !strings.Contains(poked.Says, "no watch Pod of driver gpu.example.com runs on node bare") {
		w.Errorf("poked %+v; want nobody", poked)
	}
}

// refusedBy tells whether a policy refused a call in these words.
func refusedBy(err error, why string) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'sickbay-") && strings.Contains(err.Error(), why)
}

func (w *watching) eventually(what string, ask func(context.Context) error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Fatalf("not within 30 s: %s: %v", what, err)
		}
	}
}

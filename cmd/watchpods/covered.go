package watchpods

// This file says what a running set-up of watch Pods covers, and what it doesn't and why.
// It is pure but for Read.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// failedPrepare is the reason of the Event that a kubelet writes where a driver refuses to
// prepare a claim.
const failedPrepare = "FailedPrepareDynamicResources"

// Running is what was read of a set-up of one driver.
type Running struct {
	Driver    string
	Namespace string
	Offered   []Offered
	// Pods are the Pods of the cluster that have claims or are watch Pods, Claims all
	// claims that are allocated.
	Pods   []corev1.Pod
	Claims []device.Claim
	// Classes are the DeviceClasses by name.
	Classes map[string]device.Class
	// Refused are the messages of drivers that refused a claim, by the UID of its Pod.
	Refused map[string]string
	// Problems are what couldn't be read, or not be believed.
	Problems []string
}

// Read reads what there is of a driver's watch Pods.
func Read(ctx context.Context, client kubernetes.Interface, untyped dynamic.Interface, namespace, driver string) (Running, error) {
	r := Running{Driver: driver, Namespace: namespace, Classes: map[string]device.Class{}, Refused: map[string]string{}}
	var err error
	if r.Offered, r.Problems, err = ReadOffered(ctx, untyped, driver); err != nil {
		return r, err
	}
	list := func(what, selected string, list pager.ListPageFunc, visit func(runtime.Object)) {
		if err != nil {
			return
		}
		err = pager.New(list).EachListItem(ctx, metav1.ListOptions{FieldSelector: selected}, func(o runtime.Object) error {
			visit(o)
			return nil
		})
		if err != nil {
			err = fmt.Errorf("list the %s: %w", what, err)
		}
	}
	list("Pods", "spec.nodeName!=", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	}, func(o runtime.Object) {
		if pod := o.(*corev1.Pod); len(pod.Spec.ResourceClaims) > 0 {
			r.Pods = append(r.Pods, *pod)
		}
	})
	// Those that wait for a node are none's; only our own are of interest.
	list("watch Pods", "spec.nodeName=", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.LabelSelector = kube.WatchLabel + "=" + driver
		return client.CoreV1().Pods(namespace).List(ctx, o)
	}, func(o runtime.Object) { r.Pods = append(r.Pods, *o.(*corev1.Pod)) })
	list("ResourceClaims", "", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, o)
	}, func(o runtime.Object) {
		if claim := kube.ClaimView(o.(*resourcev1.ResourceClaim)); len(claim.Results) > 0 {
			r.Claims = append(r.Claims, claim)
		}
	})
	list("DeviceClasses", "", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.ResourceV1().DeviceClasses().List(ctx, o)
	}, func(o runtime.Object) {
		class := kube.ClassView(o.(*resourcev1.DeviceClass))
		r.Classes[class.Name] = class
	})
	if err != nil {
		return r, err
	}
	list("Events", fields.OneTermEqualSelector("reason", failedPrepare).String(), func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Events(metav1.NamespaceAll).List(ctx, o)
	}, func(o runtime.Object) {
		event := o.(*corev1.Event)
		r.Refused[string(event.InvolvedObject.UID)] = event.Message
	})
	if err != nil {
		r.Problems = append(r.Problems, err.Error()+": whether the driver refused a claim isn't known")
	}
	return r, nil
}

// Findings says how the set-up is: of the driver, of each node that has devices of it, and
// of tenants.
func (r Running) Findings() []doctor.Finding {
	findings := []doctor.Finding{r.driver()}
	byNode := map[string][]Offered{}
	for _, o := range r.Offered {
		byNode[o.Node] = append(byNode[o.Node], o)
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		findings = append(findings, r.node(node, byNode[node]))
	}
	findings = append(findings, r.waiting()...)
	findings = append(findings, r.tenants())
	if len(r.Problems) > 0 {
		findings = append(findings, doctor.Finding{
			Check: "watch/read", State: doctor.Unknown, Found: strings.Join(r.Problems, "; "), Needed: "all of it",
			Without: "what is said above may lack something", Remedy: "Ask again, or as somebody who may list slices, Pods, claims, classes and events.",
		})
	}
	return findings
}

// driver says whether there may be watch Pods at all, by what is published now. Devices
// that no watch Pod has were left out of its class on purpose, maybe.
func (r Running) driver() doctor.Finding {
	f := doctor.Finding{Check: "watch/driver", State: doctor.OK, Needed: "devices without mappings, counters, parts and several allocations, at most 32 on a node"}
	if len(r.Offered) == 0 {
		f.State, f.Found, f.Without = doctor.Missing, "driver "+r.Driver+" publishes no device", "there is nothing to watch"
		f.Remedy = "See what drivers publish with kubectl get resourceslices, and name one with --driver."
		return f
	}
	watched := map[device.Key]bool{}
	for _, pod := range r.watchPods() {
		for _, result := range r.results(pod) {
			watched[result.Device] = true
		}
	}
	var bad []Refusal
	for _, o := range r.Offered {
		if watched[o.Key] {
			bad = append(bad, hazards(o)...)
		}
	}
	if len(bad) > 0 {
		f.State, f.Found = doctor.Missing, bad[0].What+" "+bad[0].Why
		if len(bad) > 1 {
			f.Found += fmt.Sprintf("; and %d more", len(bad)-1)
		}
		f.Without, f.Remedy = "watch Pods cost tenants what they need", "Take the watch Pods away from there. "+bad[0].Remedy
		return f
	}
	f.Found = fmt.Sprintf("devices: %d, nodes: %d", len(r.Offered), len(nodesOf(r.Offered)))
	return f
}

// watchPods are the driver's watch Pods that haven't ended.
func (r Running) watchPods() (pods []corev1.Pod) {
	for _, pod := range r.Pods {
		if pod.Namespace == r.Namespace && pod.Labels[kube.WatchLabel] == r.Driver &&
			pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (r Running) claim(namespace, name string) (device.Claim, bool) {
	for _, c := range r.Claims {
		if c.Namespace == namespace && c.Name == name {
			return c, true
		}
	}
	return device.Claim{}, false
}

// results are the driver's devices that a Pod has by its claims.
func (r Running) results(pod corev1.Pod) (results []device.Allocated) {
	for _, name := range kube.PodView(&pod).ClaimNames() {
		claim, _ := r.claim(pod.Namespace, name)
		for _, result := range claim.Results {
			if result.Device.Driver == r.Driver {
				results = append(results, result)
			}
		}
	}
	return results
}

// roll is how to have a claim allocated anew.
func (r Running) roll() string {
	return fmt.Sprintf("Roll the watch Pods, which takes a new claim: kubectl --namespace %s rollout restart daemonset --selector %s=%s.", r.Namespace, kube.WatchLabel, r.Driver)
}

// node says what is seen of a node's devices.
func (r Running) node(node string, offered []Offered) doctor.Finding {
	f := doctor.Finding{Check: "watch/" + node, State: doctor.OK, Needed: "a watch Pod that reports on each device"}
	var there []corev1.Pod
	for _, pod := range r.watchPods() {
		if pod.Spec.NodeName == node {
			there = append(there, pod)
		}
	}
	if len(there) == 0 {
		f.State, f.Found = doctor.Degraded, fmt.Sprintf("no watch Pod, and %d devices", len(offered))
		f.Without = "no fault of a device there shows that nobody holds"
		f.Remedy = "See whether the DaemonSet picks the node, and whether its Pod waits (watch/waiting). Without watch Pods it works as declared: only held devices are seen."
		return f
	}
	var names []string
	allocated, reported := map[device.Key]bool{}, map[device.Key]bool{}
	classes := map[string]bool{}
	var unclear []device.Unmapped
	for _, pod := range there {
		names = append(names, pod.Name)
		for _, result := range r.results(pod) {
			allocated[result.Device], classes[result.Class] = true, true
		}
		seen, unmapped := device.Observe(kube.PodView(&pod), r.claim)
		for _, o := range seen {
			reported[o.Device] = true
		}
		unclear = append(unclear, unmapped...)
		if message := r.Refused[string(pod.UID)]; message != "" && pod.Status.Phase == corev1.PodPending {
			f.State, f.Found = doctor.Missing, fmt.Sprintf("the driver refuses watch Pod %s: %s", pod.Name, message)
			f.Without = "a driver that prepares no device twice refuses tenants just so, on every device that a watch Pod has"
			f.Remedy = "Take the driver's watch Pods away: delete their DaemonSet. This driver can't be watched."
			return f
		}
	}
	added, gone, silent := []string{}, []string{}, []string{}
	listed := map[device.Key]bool{}
	watched := 0
	for _, o := range offered {
		listed[o.Key] = true
		switch {
		case !r.wanted(o, classes):
			continue
		case !allocated[o.Key]:
			added = append(added, o.Key.Device)
		case !reported[o.Key]:
			silent = append(silent, o.Key.Device)
		}
		watched++
	}
	for key := range allocated {
		if !listed[key] {
			gone = append(gone, key.Device)
		}
	}
	slices.Sort(gone)
	f.Found = fmt.Sprintf("%s: reports on %d of %d devices", strings.Join(names, ", "), watched-len(added)-len(silent), watched)
	var found, without, remedies []string
	if len(added) > 0 {
		found = append(found, "not in the claim, since they were published after it was allocated: "+some(added))
		without, remedies = append(without, "nothing is seen of those while nobody holds them"), append(remedies, r.roll())
	}
	if len(gone) > 0 {
		found = append(found, "in the claim, and not published any more: "+some(gone))
		without, remedies = append(without, "a Healthy of those says nothing, and ends in Unknown"), append(remedies, r.roll())
	}
	if len(silent) > 0 {
		found = append(found, "without an entry of their own: "+some(silent))
		without = append(without, "nothing is seen of those while nobody holds them")
		if len(unclear) > 0 {
			remedies = append(remedies, fmt.Sprintf("Entries name the claim and not the device (%s): make the set with --request-per-device %d.", unclear[0].ID, watched))
		} else {
			remedies = append(remedies, "Wait until the Pod runs and its kubelet has written them; if none come, see the gate ResourceHealthStatus of the kubelet.")
		}
	}
	if len(found) > 0 {
		f.State, f.Found = doctor.Degraded, f.Found+"; "+strings.Join(found, "; ")
		f.Without, f.Remedy = strings.Join(slices.Compact(without), "; "), strings.Join(slices.Compact(remedies), " ")
	}
	return f
}

// wanted tells whether watch Pods that ask for these classes would have the device.
func (r Running) wanted(o Offered, classes map[string]bool) bool {
	for name := range classes {
		class, known := r.Classes[name]
		if !known || class.Admits(r.Driver, o.Listed) != device.NotMember {
			return true
		}
	}
	return len(classes) == 0
}

// waiting says which watch Pods have no node.
func (r Running) waiting() []doctor.Finding {
	var waiting []string
	why := ""
	for _, pod := range r.watchPods() {
		if pod.Spec.NodeName != "" {
			continue
		}
		waiting = append(waiting, pod.Name)
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && why == "" {
				why = c.Message
			}
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return []doctor.Finding{{
		Check: "watch/waiting", State: doctor.Degraded, Needed: "a node for each watch Pod",
		Found:   fmt.Sprintf("%s: %s", some(waiting), why),
		Without: "nothing is seen of their nodes' devices that nobody holds",
		Remedy:  "Nodes without such devices, or with another number of them than the claim has requests, have to be left out: sickbay watch manifests --node-selector.",
	}}
}

// tenants says whether the driver takes a second claim for a device, which is what watch
// Pods live by.
func (r Running) tenants() doctor.Finding {
	f := doctor.Finding{Check: "watch/tenants", State: doctor.OK, Needed: "a driver that prepares a device for a tenant and for a watch Pod"}
	watched := map[device.Key]bool{}
	for _, pod := range r.watchPods() {
		if pod.Status.Phase == corev1.PodRunning {
			for _, result := range r.results(pod) {
				watched[result.Device] = true
			}
		}
	}
	both := 0
	for _, pod := range r.Pods {
		for _, result := range r.results(pod) {
			if result.AdminAccess || !watched[result.Device] {
				continue
			}
			message := r.Refused[string(pod.UID)]
			switch {
			case pod.Status.Phase == corev1.PodPending && message != "":
				f.State = doctor.Missing
				f.Found = fmt.Sprintf("Pod %s/%s waits for %s, which a watch Pod has too: %s", pod.Namespace, pod.Name, result.Device, message)
				f.Without = "tenants don't get their devices"
				f.Remedy = "Take the driver's watch Pods away: delete their DaemonSet. This driver can't be watched, unless what it refuses is something else."
				return f
			case pod.Status.Phase == corev1.PodRunning:
				both++
			}
		}
	}
	if both > 0 {
		f.Found = fmt.Sprintf("devices that are held and watched at once: %d", both)
		return f
	}
	f.State, f.Found = doctor.Unknown, "no device is held and watched at once"
	f.Without = "whether the driver prepares a device twice isn't known; one that doesn't keeps tenants from every device that is watched"
	f.Remedy = "Try it on a node that nobody uses: run a Pod there that has one of its devices, and ask again."
	return f
}

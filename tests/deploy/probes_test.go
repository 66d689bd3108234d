package deploy_test

// This file tries what the API server lets Sickbay's accounts make of claims and Jobs.

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/deploy"
)

// probesIn is the namespace of deploy/components/enforce/recovery.
const probesIn = "sickbay-probes"

func ours(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: probesIn, Labels: map[string]string{kube.ManagedByLabel: kube.ManagedBy, kube.LabelAttempt: "1"}}
}

func ourClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: ours(name), Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "device", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu.example.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Tolerations: []resourcev1.DeviceToleration{
				{Key: kube.TaintKey, Operator: resourcev1.DeviceTolerationOpEqual, Value: "7", Effect: resourcev1.DeviceTaintEffectNoSchedule},
				{Key: "gpu.example.com/xid", Operator: resourcev1.DeviceTolerationOpExists},
			},
		},
	}}}}}
}

func ourJob(name string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: ours(name), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false), PriorityClassName: kube.ProbePriorityClass, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "probe", Image: "registry.example.com/probe:1"}},
		Volumes:    []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}}}
}

// onlyMakesProbes tries claims and Jobs beyond those of attempts, as a worker that is
// given every right.
func (w *watching) onlyMakesProbes(worker deploy.Account) {
	w.Helper()
	may := rest.CopyConfig(w.stack.RESTConfig())
	may.Impersonate = rest.ImpersonationConfig{UserName: worker.User, Groups: []string{"system:masters"}}
	client := kubernetes.NewForConfigOrDie(may)
	claim := func(change func(*resourcev1.ResourceClaim, *resourcev1.ExactDeviceRequest)) error {
		c := ourClaim("tried")
		change(c, c.Spec.Devices.Requests[0].Exactly)
		_, err := client.ResourceV1().ResourceClaims(c.Namespace).Create(w.Context(), c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	job := func(change func(*batchv1.Job, *corev1.PodSpec)) error {
		j := ourJob("tried")
		change(j, &j.Spec.Template.Spec)
		_, err := client.BatchV1().Jobs(j.Namespace).Create(w.Context(), j, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const elsewhere, labelled = "only in namespace sickbay-probes", "that are labelled"
	w.eventually("a claim elsewhere is refused", func(context.Context) error {
		if err := claim(func(c *resourcev1.ResourceClaim, _ *resourcev1.ExactDeviceRequest) { c.Namespace = "default" }); !refusedBy(err, elsewhere) {
			return fmt.Errorf("not refused: %w", err)
		}
		if err := job(func(j *batchv1.Job, _ *corev1.PodSpec) { j.Namespace = "default" }); !refusedBy(err, elsewhere) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	for what, c := range map[string]struct {
		change func(*resourcev1.ResourceClaim, *resourcev1.ExactDeviceRequest)
		why    string
	}{
		"one without its labels": {func(c *resourcev1.ResourceClaim, _ *resourcev1.ExactDeviceRequest) {
			delete(c.Labels, kube.LabelAttempt)
		}, labelled},
		"all devices": {func(_ *resourcev1.ResourceClaim, r *resourcev1.ExactDeviceRequest) {
			r.AllocationMode, r.Count = resourcev1.DeviceAllocationModeAll, 0
		}, "exactly one device"},
		"two devices": {func(_ *resourcev1.ResourceClaim, r *resourcev1.ExactDeviceRequest) { r.Count = 2 }, "exactly one device"},
		"every taint tolerated": {func(_ *resourcev1.ResourceClaim, r *resourcev1.ExactDeviceRequest) {
			r.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
		}, "tolerates the mark of one epoch"},
		"every epoch's mark": {func(_ *resourcev1.ResourceClaim, r *resourcev1.ExactDeviceRequest) {
			r.Tolerations[0].Operator, r.Tolerations[0].Value = resourcev1.DeviceTolerationOpExists, ""
		}, "tolerates the mark of one epoch"},
		"a finalizer": {func(c *resourcev1.ResourceClaim, _ *resourcev1.ExactDeviceRequest) {
			c.Finalizers = []string{"example.com/stay"}
		}, "no finalizers and no owners"},
		"as it is": {func(*resourcev1.ResourceClaim, *resourcev1.ExactDeviceRequest) {}, ""},
	} {
		if err := claim(c.change); c.why == "" && err != nil || c.why != "" && !refusedBy(err, c.why) {
			w.Errorf("a claim, %s: %v; want %q", what, err, c.why)
		}
	}
	for what, c := range map[string]struct {
		change func(*batchv1.Job, *corev1.PodSpec)
		why    string
	}{
		"without its labels":   {func(j *batchv1.Job, _ *corev1.PodSpec) { delete(j.Labels, kube.LabelAttempt) }, labelled},
		"that goes before all": {func(_ *batchv1.Job, p *corev1.PodSpec) { p.PriorityClassName = "system-node-critical" }, "of PriorityClass sickbay-probes"},
		"of many Pods": {func(j *batchv1.Job, _ *corev1.PodSpec) {
			j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](9), ptr.To[int32](9)
		}, "has one Pod"},
		"with an account": {func(_ *batchv1.Job, p *corev1.PodSpec) { p.ServiceAccountName = "builder" }, "no ServiceAccount and no token"},
		"with a token":    {func(_ *batchv1.Job, p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil }, "no ServiceAccount and no token"},
		"that mounts a Secret": {func(_ *batchv1.Job, p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}}
		}, "nothing but empty folders"},
		"that mounts the node": {func(_ *batchv1.Job, p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}, "nothing but empty folders"},
		"that reads a Secret": {func(_ *batchv1.Job, p *corev1.PodSpec) {
			p.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}}}}
		}, "no Secret and no ConfigMap"},
		"with somebody's owner": {func(j *batchv1.Job, _ *corev1.PodSpec) { j.Finalizers = []string{"example.com/stay"} }, "no finalizers and no owners"},
		"as it is":              {func(*batchv1.Job, *corev1.PodSpec) {}, ""},
	} {
		if err := job(c.change); c.why == "" && err != nil || c.why != "" && !refusedBy(err, c.why) {
			w.Errorf("a Job %s: %v; want %q", what, err, c.why)
		}
	}
	w.leavesOthers(client)
	// With its own rights it makes them, and nothing where tenants are.
	own := kubernetes.NewForConfigOrDie(worker.Config)
	_, err := own.ResourceV1().ResourceClaims(probesIn).Create(w.Context(), ourClaim("own"), metav1.CreateOptions{})
	must(w.T, err)
	_, err = own.BatchV1().Jobs(probesIn).Create(w.Context(), ourJob("own"), metav1.CreateOptions{})
	must(w.T, err)
	must(w.T, own.BatchV1().Jobs(probesIn).Delete(w.Context(), "own", metav1.DeleteOptions{}))
	must(w.T, own.ResourceV1().ResourceClaims(probesIn).Delete(w.Context(), "own", metav1.DeleteOptions{}))
	for _, err := range []error{
		own.BatchV1().Jobs("default").Delete(w.Context(), "any", metav1.DeleteOptions{}),
		own.ResourceV1().ResourceClaims("default").Delete(w.Context(), "any", metav1.DeleteOptions{}),
		own.CoreV1().Pods(probesIn).Delete(w.Context(), "any", metav1.DeleteOptions{}),
	} {
		if !apierrors.IsForbidden(err) {
			w.Errorf("%s answered %v, want it forbidden", worker.User, err)
		}
	}
}

// leavesOthers tries to delete and to change claims and Jobs that aren't an attempt's.
func (w *watching) leavesOthers(client kubernetes.Interface) {
	w.Helper()
	theirs, theirJob := ourClaim("theirs"), ourJob("theirs")
	theirs.Labels, theirJob.Labels = nil, nil
	_, err := w.client.ResourceV1().ResourceClaims(probesIn).Create(w.Context(), theirs, metav1.CreateOptions{})
	must(w.T, err)
	_, err = w.client.BatchV1().Jobs(probesIn).Create(w.Context(), theirJob, metav1.CreateOptions{})
	must(w.T, err)
	there, err := w.client.ResourceV1().ResourceClaims(probesIn).Create(w.Context(), ourClaim("there"), metav1.CreateOptions{})
	must(w.T, err)
	there.Annotations = map[string]string{"a": "b"}
	_, changed := client.ResourceV1().ResourceClaims(probesIn).Update(w.Context(), there, metav1.UpdateOptions{})
	_, status := client.ResourceV1().ResourceClaims(probesIn).UpdateStatus(w.Context(), there, metav1.UpdateOptions{})
	for what, c := range map[string]struct {
		err error
		why string
	}{
		"delete somebody's claim": {client.ResourceV1().ResourceClaims(probesIn).Delete(w.Context(), "theirs", metav1.DeleteOptions{}), "that are labelled"},
		"delete somebody's Job":   {client.BatchV1().Jobs(probesIn).Delete(w.Context(), "theirs", metav1.DeleteOptions{}), "that are labelled"},
		"change a claim":          {changed, "they change none"},
		"write a claim's status":  {status, "they change none"},
	} {
		if !refusedBy(c.err, c.why) {
			w.Errorf("a worker may %s: %v", what, c.err)
		}
	}
}

package kube

// This file is what runs in an attempt: the Job whose Pod has the device all along, and
// one for each gate with a program.
//
// Both are Jobs, the first one too: a Pod that nobody owns holds up every drain of its
// node, and one that is evicted would be gone for good.

import (
	"context"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// ProbePriorityClass is the class of all Pods of attempts: after everybody, and never at
// anybody's cost.
const ProbePriorityClass = "sickbay-probes"

const (
	// leastRun is what a program gets even if its gate's time is nearly over, and
	// unboundedRun what it gets where the gate has no end.
	leastRun     = time.Second
	unboundedRun = 30 * time.Minute
	// jobSlack is how much longer than its Pod a Job lives. The Pod's own deadline is what
	// ends a program: the Pod stays, and tells of it.
	jobSlack = 30 * time.Second
	// runUser is nobody in particular.
	runUser = 65532
)

// The variables that tell a program what it is about.
const (
	EnvDevice   = "DEVICE"
	EnvUUID     = "DEVICE_UUID"
	EnvSerial   = "DEVICE_SERIAL"
	EnvSlot     = "DEVICE_SLOT"
	EnvNode     = "DEVICE_NODE"
	EnvDeadline = "DEADLINE"
)

// partOf is the part that a gate runs, or none.
func partOf(gate quarantine.Gate) string {
	switch gate {
	case quarantine.GateProbe:
		return partProbe
	case quarantine.GateCanary:
		return partCanary
	}
	return ""
}

// ensureHold makes the Job whose Pod has the device.
func (p *attempt) ensureHold(ctx context.Context) error {
	if hold := p.job(partHold); hold != nil {
		return p.checkHold(ctx, hold)
	}
	if err := p.mayMake(); err != nil {
		return err
	}
	return p.create(ctx, p.newHold())
}

// checkHold clears away a Job that ended. Its program waits until it is told to end, as an
// eviction does; the next Tend makes another.
func (p *attempt) checkHold(ctx context.Context, hold *batchv1.Job) error {
	name := hold.Namespace + "/" + hold.Name
	switch {
	case hold.DeletionTimestamp != nil:
		return refuse("Job %s is being deleted; it is made anew once it is gone", name)
	case !ended(hold):
		return nil
	}
	if err := p.delete(ctx, made{jobs: []batchv1.Job{*hold}}); err != nil {
		return err
	}
	return refuse("Job %s, whose Pod has the device, ended; it is made anew", name)
}

// ensureJob makes the Job of the present gate.
func (p *attempt) ensureJob(ctx context.Context, holder *corev1.Pod) error {
	part := partOf(p.Gate)
	if part == "" || p.job(part) != nil {
		return nil
	}
	program := p.settings.Probe
	if part == partCanary {
		program = p.settings.Canary
	}
	if program.Image == "" {
		return refuse("there is no image for the %s: set SICKBAY_PROBE_IMAGE, or name one in the policy", part)
	}
	if err := p.mayMake(); err != nil {
		return err
	}
	return p.create(ctx, p.newProgram(part, program, holder.UID, time.Now()))
}

func (p *attempt) create(ctx context.Context, job *batchv1.Job) error {
	made, err := p.client.BatchV1().Jobs(p.namespace).Create(ctx, job, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // another worker's Tend was first, or one of that name goes
		return nil
	}
	if err == nil {
		p.jobs = append(p.jobs, *made)
	}
	return p.sort(err, "create", "Job", job.Name)
}

// job finds a part's Job.
func (p *attempt) job(part string) *batchv1.Job {
	for i := range p.jobs {
		if p.jobs[i].Name == attemptName(p.Device, p.Token)+"-"+part {
			return &p.jobs[i]
		}
	}
	return nil
}

// newHold is the Job whose Pod has the device until it is deleted.
func (p *attempt) newHold() *batchv1.Job {
	job := p.newJob(partHold, p.settings.Hold)
	pod := &job.Spec.Template.Spec
	pod.RestartPolicy = corev1.RestartPolicyOnFailure
	pod.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		Claims:   pod.Containers[0].Resources.Claims,
	}
	return job
}

// newProgram is a gate's Job. It ends by the gate's deadline, whatever its program does,
// and isn't repeated: what a program that ran says is what counts.
func (p *attempt) newProgram(part string, program policy.ProgramSettings, holder types.UID, now time.Time) *batchv1.Job {
	left := unboundedRun
	if !p.Deadline.IsZero() {
		left = max(p.Deadline.Sub(now), leastRun)
	}
	job := p.newJob(part, program)
	job.Annotations[AnnotationHeldBy] = string(holder)
	job.Spec.BackoffLimit = ptr.To[int32](0)
	job.Spec.ActiveDeadlineSeconds = ptr.To(int64((left + jobSlack) / time.Second))
	pod := &job.Spec.Template.Spec
	pod.ActiveDeadlineSeconds = ptr.To(int64(left / time.Second))
	pod.RestartPolicy = corev1.RestartPolicyNever
	// No limits: a load that is worth its name takes what it needs, and its priority is the
	// least of all.
	pod.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: EnvDeadline, Value: now.Add(left).UTC().Format(time.RFC3339)})
	return job
}

func (p *attempt) newJob(part string, program policy.ProgramSettings) *batchv1.Job {
	meta := p.meta(part)
	job := &batchv1.Job{ObjectMeta: meta}
	job.Spec.Template.Labels, job.Spec.Template.Annotations = meta.Labels, map[string]string{}
	for key, value := range meta.Annotations {
		job.Spec.Template.Annotations[key] = value
	}
	job.Spec.Template.Spec = corev1.PodSpec{
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		PriorityClassName:             ProbePriorityClass,
		TerminationGracePeriodSeconds: ptr.To[int64](5),
		Affinity:                      onNode(p.Node),
		// A node whose devices are bad may be kept out itself, and nodes with devices have
		// taints that keep others off. What ends Pods ends these, too.
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](runUser), RunAsGroup: ptr.To[int64](runUser), FSGroup: ptr.To[int64](runUser),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		ResourceClaims: []corev1.PodResourceClaim{{Name: claimRequest, ResourceClaimName: ptr.To(attemptName(p.Device, p.Token))}},
		Volumes:        []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		Containers: []corev1.Container{{
			Name: part, Image: program.Image, Command: program.Command, Args: program.Args,
			Env: []corev1.EnvVar{
				{Name: EnvDevice, Value: p.Device.String()}, {Name: EnvNode, Value: p.Node},
				{Name: EnvUUID, Value: p.Hardware.UUID}, {Name: EnvSerial, Value: p.Hardware.Serial}, {Name: EnvSlot, Value: p.Hardware.Slot},
			},
			Resources:                corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: claimRequest}}},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			VolumeMounts:             []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
	return job
}

// onNode has Pods run on one node, by its name: its labels may say something else. Where
// the device is on no one node they run where it can be had.
func onNode(node string) *corev1.Affinity {
	if node == "" {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}
}

// tokenOf is the token that an object carries.
func tokenOf(object metav1.Object) (int64, bool) {
	token, err := strconv.ParseInt(strings.TrimSpace(object.GetLabels()[LabelAttempt]), 10, 64)
	return token, err == nil
}

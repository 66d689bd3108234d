package kube

// This file is an attempt at recovery as Kubernetes sees it: one claim on the device, one
// Pod that has it all along, and one Job for each gate that runs a program. It says what
// they are called, and brings the steps into their order. What each is made of and how it
// is read stands in the files beside it.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// What is made for an attempt carries these.
const (
	// LabelAttempt is the attempt's token, LabelDeviceHash the device that it is for.
	LabelAttempt    = "sickbay.dev/attempt"
	LabelDeviceHash = "sickbay.dev/device-hash"
	// LabelPart tells the Pods and Jobs of an attempt apart.
	LabelPart = "app.kubernetes.io/component"
	// AnnotationEpoch is the case's epoch.
	AnnotationEpoch = "sickbay.dev/epoch"
	// AnnotationHeldBy stands on a gate's Job: the UID of the Pod that had the device when
	// it was made. While that Pod goes on having it, the claim can't have got another one.
	AnnotationHeldBy = "sickbay.dev/held-by"
)

// The parts of an attempt that run.
const (
	partHold   = "hold"
	partProbe  = "probe"
	partCanary = "canary"
)

const (
	// tendPatience is how long a Tend waits for news at most.
	tendPatience = 20 * time.Second
	// firstGlance and lastGlance bound the pauses between two looks meanwhile.
	firstGlance = 500 * time.Millisecond
	lastGlance  = 3 * time.Second
	// staleTend is how old a Tend may be and still make something: the clean-up that came
	// after it may be over by now.
	staleTend = 15 * time.Minute
)

// Attempts makes, reads and removes what attempts at recovery need, in one namespace and
// nowhere else.
type Attempts struct {
	client    kubernetes.Interface
	namespace string
	marks     *MarkWriter
	catalogue *reason.Catalogue
	poker     *Poker
	patience  time.Duration
}

// NewAttempts returns attempts in a namespace. Without one nothing is ever made.
func NewAttempts(client kubernetes.Interface, namespace string, marks *MarkWriter, catalogue *reason.Catalogue) *Attempts {
	return &Attempts{
		client: client, namespace: namespace, marks: marks, catalogue: catalogue,
		poker: newHoldPoker(client, namespace), patience: tendPatience,
	}
}

// Tend makes what is missing of an attempt, for its present gate, and tells how it
// stands. It may be repeated, and at any time. In the gates that wait for something it
// comes back when that is there, or after tendPatience. An error means that trying again
// at once may help; what doesn't get better by that is told in the answer.
func (a *Attempts) Tend(ctx context.Context, t quarantine.Tend, settings policy.ProbeSettings) (quarantine.Tended, error) {
	until := time.Now().Add(a.patience)
	pause := firstGlance
	for {
		tended, err := a.pass(ctx, t, settings, false)
		if err != nil {
			return quarantine.Tended{}, err
		}
		if !waits(t.Gate) || isNews(t, tended) || time.Now().Add(pause).After(until) {
			return a.pass(ctx, t, settings, true)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return quarantine.Tended{}, fmt.Errorf("tend to attempt %d at %s: %w", t.Token, t.Device, ctx.Err())
		case <-timer.C:
		}
		pause = min(2*pause, lastGlance)
	}
}

// waits tells whether a gate is about something that happens in the cluster.
func waits(gate quarantine.Gate) bool {
	return gate == quarantine.GateEvidence || gate == quarantine.GateProbe || gate == quarantine.GateCanary
}

// isNews tells whether an answer says something that isn't known.
func isNews(t quarantine.Tend, tended quarantine.Tended) bool {
	if tended.Elsewhere != "" || tended.NodeOut != "" || tended.Failed != "" || tended.Job != t.Job {
		return true
	}
	if tended.Reading == nil {
		return t.Health != "" && t.Health != device.Unknown
	}
	return tended.Reading.Health != t.Health
}

// attempt is one pass over an attempt, and what it found.
type attempt struct {
	*Attempts
	quarantine.Tend
	settings policy.ProbeSettings
	tended   quarantine.Tended
	// claim, jobs and pods are what is there of this attempt.
	claim *resourcev1.ResourceClaim
	jobs  []batchv1.Job
	pods  []corev1.Pod
}

// pass goes through the attempt once, in an order in which nothing is believed or run
// before the claim is known to be on that device. With poke the device's health is one
// that the kubelet worked out after it was asked.
func (a *Attempts) pass(ctx context.Context, t quarantine.Tend, settings policy.ProbeSettings, poke bool) (quarantine.Tended, error) {
	p := &attempt{Attempts: a, Tend: t, settings: settings}
	p.tended = quarantine.Tended{Token: t.Token, Gate: t.Gate, Asked: t.Asked}
	err := p.tend(ctx, poke)
	var refused *refusedError
	if errors.As(err, &refused) {
		p.tended.Trouble, err = refused.Error(), nil
	}
	return p.tended, err
}

// tend fills in the answer, as far as it gets.
func (p *attempt) tend(ctx context.Context, poke bool) error {
	if trouble := p.impossible(); trouble != "" {
		return refuse("%s", trouble)
	}
	if err := p.find(ctx); err != nil {
		return err
	}
	if err := p.lookAtNode(ctx); err != nil {
		return err
	}
	if p.tended.NodeOut != "" {
		return nil
	}
	if err := p.ensureClaim(ctx); err != nil {
		return err
	}
	p.tended.Claim = p.claim.Name
	if err := p.ensureHold(ctx); err != nil {
		return err
	}
	holder := p.holder()
	if holder != nil {
		p.tended.Pod = PodView(holder).Ref
		p.tended.Trouble = podTrouble(holder, time.Now())
	}
	if p.claim.Status.Allocation == nil {
		return p.explainPending(ctx, holder)
	}
	if p.tended.Elsewhere = elsewhere(p.claim, p.Device); p.tended.Elsewhere != "" {
		return nil
	}
	if holder == nil || holder.Status.Phase != corev1.PodRunning {
		// Without it nothing shows that the claim was on this device all the time.
		p.readJob(nil)
		return nil
	}
	if err := p.readHealth(ctx, holder, poke); err != nil {
		return err
	}
	if err := p.ensureJob(ctx, holder); err != nil {
		return err
	}
	p.readJob(holder)
	return nil
}

// impossible says why no attempt can be made at all.
func (p *attempt) impossible() string {
	switch {
	case p.namespace == "":
		return "there is no namespace for claims and Pods of ours: set SICKBAY_PROBE_NAMESPACE, as deploy/components/enforce does"
	case p.Device.Path() != device.PathDRA:
		return "Kubernetes can't give a Pod this one device: a device plugin's devices are handed out by number"
	case p.settings.Hold.Image == "":
		return "there is no image for the Pod that has the device meanwhile: set SICKBAY_PROBE_IMAGE"
	}
	return ""
}

// attemptName is the name of an attempt's claim, and begins those of its Jobs. It is for
// this attempt at this device alone, so that nothing of an earlier one is ever taken for
// this one's.
func attemptName(key device.Key, token int64) string {
	return "sickbay-" + deviceHash(key) + "-" + strconv.FormatInt(token, 10)
}

// deviceHash stands for a device where its name doesn't fit.
func deviceHash(key device.Key) string {
	sum := sha256.Sum256([]byte(key.String()))
	return hex.EncodeToString(sum[:8])
}

// meta is what all objects of the attempt carry.
func (p *attempt) meta(part string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: p.namespace, Name: attemptName(p.Device, p.Token),
		Labels: map[string]string{
			ManagedByLabel: ManagedBy, LabelAttempt: strconv.FormatInt(p.Token, 10), LabelDeviceHash: deviceHash(p.Device),
		},
		Annotations: map[string]string{AnnotationDevice: p.Device.String(), AnnotationEpoch: strconv.FormatInt(p.Epoch, 10)},
	}
	if part != "" {
		meta.Name += "-" + part
		meta.Labels[LabelPart] = part
	}
	return meta
}

// find reads what is there of the attempt, and clears away what is left of earlier ones.
func (p *attempt) find(ctx context.Context) error {
	there, err := p.objects(ctx, p.Device)
	if err != nil {
		return err
	}
	if later := there.after(p.Token); !later.none() {
		return refuse("an attempt at this device that began later is under way; %s", later.left())
	}
	if older := there.upTo(p.Token - 1); !older.none() {
		if err := p.delete(ctx, older); err != nil {
			return err
		}
	}
	mine := there.of(p.Token)
	p.jobs, p.pods = mine.jobs, mine.pods
	for i := range mine.claims {
		if mine.claims[i].Name == attemptName(p.Device, p.Token) {
			p.claim = &mine.claims[i]
		}
	}
	return nil
}

// selector selects all that was ever made for a device.
func selector(key device.Key) string {
	return labels.Set{ManagedByLabel: ManagedBy, LabelDeviceHash: deviceHash(key)}.String()
}

// mayMake refuses to make anything for a Tend that has been on its way for too long.
func (p *attempt) mayMake() error {
	if age := time.Since(p.Asked); age > staleTend {
		return refuse("this was asked for %s ago, by this worker's clock, and nothing is made for what may be over", age.Round(time.Second))
	}
	return nil
}

// refusedError is what no further try will change by itself. Its text is for people, with
// the object and what to do.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

func refuse(format string, args ...any) error { return &refusedError{fmt.Sprintf(format, args...)} }

// sort tells what the API server refuses for good from what another try may mend.
func (a *Attempts) sort(err error, verb, kind, name string) error {
	what := fmt.Sprintf("%s %s %s/%s", verb, kind, a.namespace, name)
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return refuse("%s: namespace %s is being deleted; wait until it is gone and apply deploy/components/enforce again", what, a.namespace)
	case apierrors.IsForbidden(err):
		return refuse("the API server forbids to %s (%v); deploy/components/enforce grants it to the workers' ServiceAccount, or look at the admission policy or quota that is named", what, err)
	case apierrors.IsNotFound(err) && verb == "create":
		return refuse("the API server can't %s (%v); deploy/components/enforce makes the namespace", what, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		return refuse("the API server refuses to %s: %v", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

package kube

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// pluginDetail is why a device plugin's device gets no mark, and what a person can do.
const pluginDetail = "Kubernetes has no API to keep one device of a device plugin out. No new Pod gets it while its plugin calls it Unhealthy; " +
	"to be sure, cordon its node, or have the plugin leave it out"

// MarkWriter makes and removes marks. Both are safe to repeat and fenced by the
// epoch: an attempt of an earlier case that is still running changes nothing.
type MarkWriter struct {
	client    dynamic.Interface
	discovery *Discovery
	permits   Permits
}

// Permits says whether one more device may be kept out now.
type Permits interface {
	Permit(context.Context, quarantine.PutMark) (Permit, error)
}

// Permit is the answer. One that isn't granted says why, and when to ask again.
type Permit struct {
	Granted bool
	Why     string
	Again   time.Duration
}

// NewMarkWriter returns a writer for the cluster behind the clients.
func NewMarkWriter(client dynamic.Interface, discovery *Discovery) *MarkWriter {
	return &MarkWriter{client: client, discovery: discovery}
}

// Permitted has the writer ask for a permit before it makes a mark that isn't there.
func (w *MarkWriter) Permitted(by Permits) *MarkWriter {
	w.permits = by
	return w
}

// Put makes the device's mark say what the command says. An error means that
// trying again at once may help; everything else is an outcome.
func (w *MarkWriter) Put(ctx context.Context, c quarantine.PutMark) (quarantine.MarkReported, error) {
	return w.put(ctx, c, w.withoutPermit, w.rewrite)
}

// First makes the device's mark if there is none. One that is there isn't touched, and
// is in force if it is this epoch's.
func (w *MarkWriter) First(ctx context.Context, c quarantine.PutMark) (quarantine.MarkReported, error) {
	return w.put(ctx, c,
		func(_ context.Context, _ dynamic.ResourceInterface, _ *unstructured.Unstructured, _ quarantine.PutMark, report quarantine.MarkReported, permit Permit) (quarantine.MarkReported, error) {
			report.Outcome, report.Detail, report.Again = quarantine.OutcomeHeld, permit.Why, permit.Again
			return report, nil
		},
		func(ctx context.Context, rules dynamic.ResourceInterface, want *unstructured.Unstructured, c quarantine.PutMark, report quarantine.MarkReported) (quarantine.MarkReported, error) {
			there, err := rules.Get(ctx, want.GetName(), metav1.GetOptions{})
			if err != nil {
				return report, fmt.Errorf("get DeviceTaintRule %s: %w", want.GetName(), err)
			}
			report.Outcome = quarantine.OutcomeForeign
			if mark, ours := ReadMark(there); ours && mark.Intact && mark.Found.Epoch == c.Epoch {
				report.Outcome, report.Version = quarantine.OutcomeInForce, mark.Found.Version
			}
			return report, nil
		})
}

// put makes a mark that isn't there, with a permit. without says what comes of it without
// one, and there what if it is there already.
func (w *MarkWriter) put(
	ctx context.Context, c quarantine.PutMark,
	without func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured, quarantine.PutMark, quarantine.MarkReported, Permit) (quarantine.MarkReported, error),
	there func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured, quarantine.PutMark, quarantine.MarkReported) (quarantine.MarkReported, error),
) (quarantine.MarkReported, error) {
	report := quarantine.MarkReported{Epoch: c.Epoch, Revision: c.Revision, Name: MarkName(c.Device)}
	if c.Device.Path() != device.PathDRA {
		report.Outcome = quarantine.OutcomeUnavailable
		report.Detail = pluginDetail
		return report, nil
	}
	mark, err := NewMark(c)
	if err != nil {
		report.Outcome, report.Detail = quarantine.OutcomeRefused, err.Error()
		return report, nil
	}
	capabilities, err := w.discovery.Capabilities(ctx)
	if err != nil {
		return report, err
	}
	if !capabilities.CanMark() {
		report.Outcome = quarantine.OutcomeUnavailable
		report.Detail = "the API server serves no DeviceTaintRule; turn on the DRADeviceTaintRules gate and resource.k8s.io/v1beta2 (1.36), or upgrade to 1.37"
		return report, nil
	}
	object, err := unstructuredMark(mark, capabilities.TaintRules)
	if err != nil {
		return report, err
	}
	rules := w.client.Resource(capabilities.TaintRules)
	if w.permits != nil {
		permit, err := w.permits.Permit(ctx, c)
		if err != nil {
			return report, fmt.Errorf("ask for a permit to keep %s out: %w", c.Device, err)
		}
		if !permit.Granted {
			return without(ctx, rules, object, c, report, permit)
		}
	}
	created, err := rules.Create(ctx, object, metav1.CreateOptions{FieldManager: ManagedBy})
	if apierrors.IsAlreadyExists(err) {
		return there(ctx, rules, object, c, report)
	}
	if err == nil {
		report.Version = device.Version(created.GetResourceVersion())
	}
	return w.outcome(report, err, "create", capabilities.TaintRules)
}

// withoutPermit brings a mark up to date that is there already, for which it takes no
// permit; any other is held.
func (w *MarkWriter) withoutPermit(ctx context.Context, rules dynamic.ResourceInterface, want *unstructured.Unstructured, c quarantine.PutMark, report quarantine.MarkReported, permit Permit) (quarantine.MarkReported, error) {
	_, err := rules.Get(ctx, want.GetName(), metav1.GetOptions{})
	switch {
	case err == nil:
		return w.rewrite(ctx, rules, want, c, report)
	case apierrors.IsNotFound(err):
		report.Outcome, report.Detail, report.Again = quarantine.OutcomeHeld, permit.Why, permit.Again
		return report, nil
	}
	return report, fmt.Errorf("get DeviceTaintRule %s: %w", want.GetName(), err)
}

// Standing lists the marks that exist, with the scopes in which each counts.
func (w *MarkWriter) Standing(ctx context.Context) ([]budget.Standing, error) {
	capabilities, err := w.discovery.Capabilities(ctx)
	if err != nil || !capabilities.CanMark() {
		return nil, err
	}
	list, err := w.client.Resource(capabilities.TaintRules).List(ctx, metav1.ListOptions{LabelSelector: ManagedByLabel + "=" + ManagedBy})
	if err != nil {
		return nil, fmt.Errorf("list the marks (DeviceTaintRules): %w", err)
	}
	var standing []budget.Standing
	for i := range list.Items {
		if mark, ours := ReadMark(&list.Items[i]); ours {
			standing = append(standing, mark.Standing())
		}
	}
	return standing, nil
}

// Standing is the mark as it counts in budgets.
func (m Mark) Standing() budget.Standing {
	return budget.Standing{Device: m.Device.String(), Epoch: m.Found.Epoch, Scopes: budget.ScopesOf(m.Device, m.Node, nil, nil)}
}

// rewrite brings a mark that is there already up to date.
func (w *MarkWriter) rewrite(ctx context.Context, rules dynamic.ResourceInterface, want *unstructured.Unstructured, c quarantine.PutMark, report quarantine.MarkReported) (quarantine.MarkReported, error) {
	gvr := schema.GroupVersionResource{Group: resourceGroup, Version: want.GroupVersionKind().Version, Resource: taintRules}
	there, err := rules.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return report, fmt.Errorf("mark %s vanished while it was read; try again", want.GetName())
	}
	if err != nil {
		return w.outcome(report, err, "get", gvr)
	}
	mark, ours := ReadMark(there)
	switch {
	case !ours:
		report.Outcome = quarantine.OutcomeForeign
		report.Detail = fmt.Sprintf("DeviceTaintRule %s exists and isn't Sickbay's; remove or rename it", want.GetName())
		return report, nil
	case there.GetDeletionTimestamp() != nil:
		return report, fmt.Errorf("mark %s is being deleted; try again", want.GetName())
	case mark.Found.Epoch > c.Epoch:
		report.Outcome, report.Before = quarantine.OutcomeSuperseded, &mark.Found
		report.Detail = fmt.Sprintf("mark %s belongs to epoch %d", want.GetName(), mark.Found.Epoch)
		return report, nil
	}
	if mark.Found.Epoch > 0 && mark.Found.Epoch < c.Epoch {
		report.Before = &mark.Found
	}
	if mark.Intact && mark.Found.Epoch == c.Epoch && says(there, want) {
		report.Outcome, report.Version = quarantine.OutcomeInForce, mark.Found.Version
		return report, nil
	}
	next := there.DeepCopy()
	next.SetLabels(merged(there.GetLabels(), want.GetLabels()))
	next.SetAnnotations(annotated(there.GetAnnotations(), want.GetAnnotations()))
	next.Object["spec"] = want.Object["spec"]
	// The resourceVersion that was read travels along, so a change in between is
	// a conflict and not overwritten.
	updated, err := rules.Update(ctx, next, metav1.UpdateOptions{FieldManager: ManagedBy})
	if err == nil {
		report.Version = device.Version(updated.GetResourceVersion())
	}
	return w.outcome(report, err, "update", gvr)
}

// Lift removes the device's mark if it is Sickbay's, of this epoch, and still
// keeps the device out as it was written.
func (w *MarkWriter) Lift(ctx context.Context, c quarantine.LiftMark) (quarantine.MarkReported, error) {
	report := quarantine.MarkReported{Epoch: c.Epoch, Name: MarkName(c.Device)}
	capabilities, err := w.discovery.Capabilities(ctx)
	if err != nil {
		return report, err
	}
	if c.Device.Path() != device.PathDRA || !capabilities.CanMark() {
		report.Outcome = quarantine.OutcomeLifted
		return report, nil
	}
	rules := w.client.Resource(capabilities.TaintRules)
	there, err := rules.Get(ctx, report.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		report.Outcome = quarantine.OutcomeLifted
		return report, nil
	}
	if err != nil {
		return w.outcome(report, err, "get", capabilities.TaintRules)
	}
	mark, ours := ReadMark(there)
	switch {
	case !ours:
		report.Outcome = quarantine.OutcomeForeign
		report.Detail = fmt.Sprintf("DeviceTaintRule %s isn't Sickbay's and stays", report.Name)
		return report, nil
	case mark.Found.Epoch > c.Epoch:
		report.Outcome, report.Before = quarantine.OutcomeSuperseded, &mark.Found
		report.Detail = fmt.Sprintf("mark %s belongs to epoch %d and stays", report.Name, mark.Found.Epoch)
		return report, nil
	case mark.Found.Epoch < c.Epoch || !mark.Intact:
		report.Outcome = quarantine.OutcomeChanged
		report.Detail = fmt.Sprintf("DeviceTaintRule %s was changed by somebody else and stays; remove it by hand", report.Name)
		return report, nil
	}
	uid, version := there.GetUID(), there.GetResourceVersion()
	err = rules.Delete(ctx, report.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if err == nil || apierrors.IsNotFound(err) {
		report.Outcome = quarantine.OutcomeLifted
		return report, nil
	}
	return w.outcome(report, err, "delete", capabilities.TaintRules)
}

// Read returns the device's mark, or nil.
func (w *MarkWriter) Read(ctx context.Context, key device.Key) (*Mark, error) {
	capabilities, err := w.discovery.Capabilities(ctx)
	if err != nil || key.Path() != device.PathDRA || !capabilities.CanMark() {
		return nil, err
	}
	object, err := w.client.Resource(capabilities.TaintRules).Get(ctx, MarkName(key), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get DeviceTaintRule %s: %w", MarkName(key), err)
	}
	mark, ours := ReadMark(object)
	if !ours {
		return nil, nil
	}
	return &mark, nil
}

// outcome sorts an API error: what the server will say again however often it
// is asked is an outcome with a remedy, everything else is worth another try.
func (w *MarkWriter) outcome(report quarantine.MarkReported, err error, verb string, gvr schema.GroupVersionResource) (quarantine.MarkReported, error) {
	switch {
	case err == nil:
		report.Outcome = quarantine.OutcomeInForce
		return report, nil
	case apierrors.IsForbidden(err):
		report.Outcome = quarantine.OutcomeRefused
		report.Detail = fmt.Sprintf("the API server forbids to %s DeviceTaintRule %s (%v); grant the worker's ServiceAccount %s on %s.%s, or look at the admission policy that is named",
			verb, report.Name, err, verb, gvr.Resource, gvr.Group)
		return report, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		report.Outcome = quarantine.OutcomeRefused
		report.Detail = fmt.Sprintf("the API server refuses DeviceTaintRule %s: %v", report.Name, err)
		return report, nil
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		// The API went away between discovery and the call.
		w.discovery.Forget()
	}
	return report, fmt.Errorf("%s DeviceTaintRule %s: %w", verb, report.Name, err)
}

// says tells whether what is there carries every label and annotation wanted.
func says(there, want *unstructured.Unstructured) bool {
	return maps.Equal(there.GetLabels(), merged(there.GetLabels(), want.GetLabels())) &&
		maps.Equal(there.GetAnnotations(), annotated(there.GetAnnotations(), want.GetAnnotations()))
}

// annotated is merged, without what stands on some marks only and not on this one.
func annotated(there, want map[string]string) map[string]string {
	all := merged(there, want)
	if _, wanted := want[AnnotationPhase]; !wanted {
		delete(all, AnnotationPhase)
	}
	return all
}

// merged keeps what others added and sets what is ours.
func merged(there, want map[string]string) map[string]string {
	all := maps.Clone(there)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, want)
	return all
}

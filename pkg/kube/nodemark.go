package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
)

// This file writes what isolates a whole node: a taint of Sickbay's, or a cordon. Both
// carry an annotation that says whose it is, since when and why. Without the annotation a
// cordon is somebody else's, and so is a taint whose value isn't the epoch.

const (
	// NodeTaintKey is the key of the taint that isolates a node; its value is the epoch.
	NodeTaintKey = "sickbay.dev/isolated"
	// AnnotationIsolated says what Sickbay did to a node.
	AnnotationIsolated = "sickbay.dev/isolated"
)

// nodeNote is the annotation's JSON, for people and for whoever takes the isolation over.
type nodeNote struct {
	Epoch int64          `json:"epoch"`
	Way   isolation.Way  `json:"way"`
	Since time.Time      `json:"since"`
	Why   string         `json:"why"`
	Kind  isolation.Kind `json:"kind,omitempty"`
	// Cases are the faulty devices, each of which has a case of its own, Workflow is the
	// one that keeps the node out, and Actor is who decided it.
	Cases    []string `json:"cases,omitempty"`
	Workflow string   `json:"workflow"`
	Actor    string   `json:"actor"`
	// Costs are how many devices it takes out, in all and of each class.
	Total   int            `json:"devices,omitempty"`
	Classes map[string]int `json:"classes,omitempty"`
}

// NodeMark is what Sickbay wrote on a node.
type NodeMark struct {
	Node  string
	Found isolation.Found
	note  nodeNote
}

// Standing is it as it counts in budgets.
func (m NodeMark) Standing() budget.Standing {
	s := budget.Standing{Device: budget.Whole(m.Node), Epoch: m.Found.Epoch, Cost: max(m.note.Total, 1)}
	for class, n := range m.note.Classes {
		scope := budget.Scope{Kind: budget.Class, Name: class}
		s.Scopes, s.Costs = append(s.Scopes, scope), append(s.Costs, budget.Size{Scope: scope, Eligible: n})
	}
	slices.SortFunc(s.Scopes, budget.Compare)
	slices.SortFunc(s.Costs, func(a, b budget.Size) int { return budget.Compare(a.Scope, b.Scope) })
	s.Scopes = append(s.Scopes, budget.Scope{Kind: budget.Node, Name: m.Node})
	return s
}

// Devices are the faulty devices that it names.
func (m NodeMark) Devices() []string { return m.note.Cases }

// ReadNodeMark reads what Sickbay wrote on a node. epoch is that of an isolation that
// knows its own taint even where somebody took the annotation away; zero is none.
func ReadNodeMark(node *corev1.Node, epoch int64) (NodeMark, bool) {
	var note nodeNote
	err := json.Unmarshal([]byte(node.Annotations[AnnotationIsolated]), &note)
	written := err == nil && note.Epoch > 0 && note.Epoch <= maxEpoch && (note.Way == isolation.Taint || note.Way == isolation.Cordon)
	tainted := nodeTaint(node)
	if !written {
		if epoch == 0 || tainted == nil || tainted.Value != strconv.FormatInt(epoch, 10) {
			return NodeMark{}, false
		}
		return NodeMark{Node: node.Name, Found: isolation.Found{Epoch: epoch, Way: isolation.Taint}}, true
	}
	found := isolation.Found{Epoch: note.Epoch, Way: note.Way, Since: note.Since, Why: note.Why}
	switch note.Way {
	case isolation.Taint:
		found.Whole = tainted != nil && tainted.Value == strconv.FormatInt(note.Epoch, 10)
	case isolation.Cordon:
		found.Whole = node.Spec.Unschedulable
	}
	return NodeMark{Node: node.Name, Found: found, note: note}, true
}

// nodeTaint is the taint with Sickbay's key, or nil.
func nodeTaint(node *corev1.Node) *corev1.Taint {
	for i, t := range node.Spec.Taints {
		if t.Key == NodeTaintKey && t.Effect == corev1.TaintEffectNoSchedule {
			return &node.Spec.Taints[i]
		}
	}
	return nil
}

// OthersKeepOut says who else keeps a node out by a cordon, or has a taint with Sickbay's
// key on it; empty is nobody.
func OthersKeepOut(node *corev1.Node, epoch int64) string {
	mark, ours := ReadNodeMark(node, epoch)
	if node.Spec.Unschedulable && !(ours && mark.Found.Way == isolation.Cordon) {
		return "somebody else cordoned it (spec.unschedulable without the annotation " + AnnotationIsolated + ")"
	}
	return ""
}

// foreignTaint says that somebody else has a taint with Sickbay's key on the node.
func foreignTaint(node *corev1.Node, mark NodeMark, epoch int64) string {
	t := nodeTaint(node)
	if t == nil || t.Value == strconv.FormatInt(epoch, 10) || mark.Found.Epoch > 0 && t.Value == strconv.FormatInt(mark.Found.Epoch, 10) {
		return ""
	}
	return fmt.Sprintf("a taint %s=%s that isn't Sickbay's is on it; remove it, or use a key of your own", t.Key, t.Value)
}

// NodePermits says whether a whole node may be kept out now.
type NodePermits interface {
	NodePermit(context.Context, isolation.Put) (Permit, error)
}

// NodeWriter isolates nodes, and gives back those that Sickbay isolated. Both are safe to
// repeat, and each write is tested on the version of the node that was read.
type NodeWriter struct {
	client  kubernetes.Interface
	permits NodePermits
}

// NewNodeWriter returns a writer that asks for a permit before it keeps a node out.
func NewNodeWriter(client kubernetes.Interface, permits NodePermits) *NodeWriter {
	return &NodeWriter{client: client, permits: permits}
}

// Put isolates the node. An error means that trying again at once may help; everything
// else is an outcome. Who wrote on the node in between is read anew: kubelets and the
// node controller do all the time.
func (w *NodeWriter) Put(ctx context.Context, p isolation.Put) (report isolation.Written, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		report, err = w.put(ctx, p)
		return err
	})
	return report, err
}

func (w *NodeWriter) put(ctx context.Context, p isolation.Put) (isolation.Written, error) {
	report := isolation.Written{Epoch: p.Epoch, Way: p.Way}
	node, err := w.client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		report.Outcome = isolation.NodeGone
		return report, nil
	case err != nil:
		return report, fmt.Errorf("get node %s: %w", p.Node, err)
	case !nodeReady(node):
		report.Outcome = isolation.NodeOut
		return report, nil
	}
	mark, ours := ReadNodeMark(node, p.Epoch)
	if ours && mark.Found.Epoch > p.Epoch {
		report.Outcome, report.Detail = isolation.Superseded, fmt.Sprintf("it was isolated anew under epoch %d", mark.Found.Epoch)
		return report, nil
	}
	if p.Way == isolation.Cordon {
		report.Detail = OthersKeepOut(node, p.Epoch)
	} else {
		report.Detail = foreignTaint(node, mark, p.Epoch)
	}
	if report.Detail != "" {
		report.Outcome = isolation.Foreign
		return report, nil
	}
	if !ours || !mark.Found.Whole {
		permit, err := w.permits.NodePermit(ctx, p)
		if err != nil {
			return report, fmt.Errorf("ask for a permit to isolate node %s: %w", p.Node, err)
		}
		if !permit.Granted {
			report.Outcome, report.Detail, report.Again = isolation.Held, permit.Why, permit.Again
			return report, nil
		}
	}
	if p.Observe {
		report.Outcome = isolation.WouldBe
		return report, nil
	}
	note, err := json.Marshal(noteOf(p))
	if err != nil {
		return report, fmt.Errorf("write the annotation of node %s: %w", p.Node, err)
	}
	taints := withoutNodeTaint(node.Spec.Taints)
	spec := map[string]any{}
	if p.Way == isolation.Taint {
		taints = append(taints, corev1.Taint{Key: NodeTaintKey, Value: strconv.FormatInt(p.Epoch, 10), Effect: corev1.TaintEffectNoSchedule})
		if ours && mark.Found.Way == isolation.Cordon && node.Spec.Unschedulable {
			spec["unschedulable"] = nil
		}
	} else if !node.Spec.Unschedulable {
		spec["unschedulable"] = true
	}
	if !sameTaints(taints, node.Spec.Taints) {
		spec["taints"] = taints
	}
	err = w.patch(ctx, node, string(note), spec)
	report.Outcome, report.Detail, err = outcomeOf(isolation.InForce, p.Node, err)
	return report, err
}

func noteOf(p isolation.Put) nodeNote {
	note := nodeNote{
		Epoch: p.Epoch, Way: p.Way, Since: p.Since.UTC(), Why: p.Ground.Text, Kind: p.Ground.Kind, Cases: p.Ground.Devices,
		Workflow: budget.Whole(p.Node), Actor: ManagedBy, Total: p.Levels.Total,
	}
	for _, c := range p.Levels.Classes {
		if note.Classes == nil {
			note.Classes = map[string]int{}
		}
		note.Classes[c.Scope.Name] = c.Eligible
	}
	return note
}

// Lift takes Sickbay's own taint or cordon off the node. What isn't Sickbay's stays.
func (w *NodeWriter) Lift(ctx context.Context, l isolation.Lift) (report isolation.Taken, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		report, err = w.lift(ctx, l)
		return err
	})
	return report, err
}

func (w *NodeWriter) lift(ctx context.Context, l isolation.Lift) (isolation.Taken, error) {
	report := isolation.Taken{Epoch: l.Epoch}
	node, err := w.client.CoreV1().Nodes().Get(ctx, l.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		report.Outcome = isolation.NodeGone
		return report, nil
	case err != nil:
		return report, fmt.Errorf("get node %s: %w", l.Node, err)
	}
	mark, ours := ReadNodeMark(node, l.Epoch)
	switch {
	case !ours:
		report.Outcome = isolation.Lifted
		if others := OthersKeepOut(node, l.Epoch); others != "" {
			report.Outcome, report.Detail = isolation.Foreign, others+"; it stays"
		}
		return report, nil
	case mark.Found.Epoch > l.Epoch:
		report.Outcome, report.Detail = isolation.Superseded, fmt.Sprintf("it was isolated anew under epoch %d", mark.Found.Epoch)
		return report, nil
	}
	spec := map[string]any{}
	if foreignTaint(node, mark, l.Epoch) == "" && nodeTaint(node) != nil {
		spec["taints"] = withoutNodeTaint(node.Spec.Taints)
	}
	if mark.Found.Way == isolation.Cordon && node.Spec.Unschedulable {
		spec["unschedulable"] = nil
	}
	err = w.patch(ctx, node, nil, spec)
	report.Outcome, report.Detail, err = outcomeOf(isolation.Lifted, l.Node, err)
	return report, err
}

// patch writes on the version of the node that was read: whatever was written in between
// is a conflict, and nothing of it is overwritten.
func (w *NodeWriter) patch(ctx context.Context, node *corev1.Node, note any, spec map[string]any) error {
	metadata := map[string]any{"resourceVersion": node.ResourceVersion}
	if there, had := node.Annotations[AnnotationIsolated]; note != nil || had {
		if note == nil || there != note {
			metadata["annotations"] = map[string]any{AnnotationIsolated: note}
		}
	}
	if len(spec) == 0 && len(metadata) == 1 {
		return nil
	}
	patch := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	content, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = w.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, content, metav1.PatchOptions{FieldManager: ManagedBy})
	return err
}

// outcomeOf sorts an API error: what the server will say again however often it is asked
// is an outcome with a remedy, everything else is worth another try.
func outcomeOf(done isolation.Outcome, node string, err error) (isolation.Outcome, string, error) {
	switch {
	case err == nil:
		return done, "", nil
	case apierrors.IsForbidden(err):
		return isolation.Refused, fmt.Sprintf("the API server forbids to patch node %s (%v); grant the worker's ServiceAccount patch on nodes by deploy/components/node-isolation, or look at the admission policy that is named", node, err), nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return isolation.Refused, fmt.Sprintf("the API server refuses the patch of node %s: %v", node, err), nil
	case apierrors.IsNotFound(err):
		return isolation.NodeGone, "", nil
	}
	return "", "", fmt.Errorf("patch node %s: %w", node, err)
}

// Standing lists the nodes that Sickbay keeps out, as they count in budgets.
func (w *NodeWriter) Standing(ctx context.Context) ([]budget.Standing, error) {
	// From the API server's cache: a starter counts anew within seconds.
	list, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("list the nodes that are isolated: %w", err)
	}
	var standing []budget.Standing
	for i := range list.Items {
		if mark, ours := ReadNodeMark(&list.Items[i], 0); ours {
			standing = append(standing, mark.Standing())
		}
	}
	return standing, nil
}

// Look reads the node, its Lease and the marks of its devices, past every cache.
func (w *NodeWriter) Look(ctx context.Context, marks *MarkWriter, l isolation.Look) (isolation.Looked, error) {
	node, err := w.client.CoreV1().Nodes().Get(ctx, l.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return isolation.Looked{}, nil
	}
	if err != nil {
		return isolation.Looked{}, fmt.Errorf("get node %s: %w", l.Node, err)
	}
	looked := isolation.Looked{Exists: true, UID: string(node.UID), Ready: device.ReadyUnknown, Others: OthersKeepOut(node, l.Epoch)}
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			looked.Ready = device.Readiness(c.Status)
		case c.Status == corev1.ConditionTrue && slices.Contains(l.Conditions, string(c.Type)):
			looked.Conditions = append(looked.Conditions, isolation.Condition{Type: string(c.Type), Reason: c.Reason, Message: c.Message})
		}
	}
	if mark, ours := ReadNodeMark(node, l.Epoch); ours {
		looked.Found = &mark.Found
	}
	lease, err := w.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, l.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return isolation.Looked{}, fmt.Errorf("get the Lease of node %s: %w", l.Node, err)
	case lease.Spec.RenewTime != nil:
		looked.Lease = lease.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
	}
	on, err := marks.OnNode(ctx, l.Node)
	if err != nil {
		return isolation.Looked{}, err
	}
	for _, m := range on {
		// What is only restricted isn't known to be faulty.
		if m.Found.Restricted || m.Found.Epoch == 0 {
			continue
		}
		looked.Faulty = append(looked.Faulty, isolation.Faulty{Device: m.Device.String(), Epoch: m.Found.Epoch, Reason: string(m.Found.Reason), Marked: true})
	}
	return looked, nil
}

// OnNode lists the marks of a node's devices.
func (w *MarkWriter) OnNode(ctx context.Context, node string) ([]Mark, error) {
	capabilities, err := w.discovery.Capabilities(ctx)
	if err != nil || !capabilities.CanMark() {
		return nil, err
	}
	list, err := w.client.Resource(capabilities.TaintRules).List(ctx, metav1.ListOptions{LabelSelector: ManagedByLabel + "=" + ManagedBy})
	if err != nil {
		return nil, fmt.Errorf("list the marks (DeviceTaintRules): %w", err)
	}
	var marks []Mark
	for i := range list.Items {
		if mark, ours := ReadMark(&list.Items[i]); ours && mark.Node == node {
			marks = append(marks, mark)
		}
	}
	return marks, nil
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func withoutNodeTaint(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return t.Key == NodeTaintKey && t.Effect == corev1.TaintEffectNoSchedule
	})
}

func sameTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
}

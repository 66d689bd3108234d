package doctor

// This file looks at what Sickbay's processes may do, and at the fence around the
// one right that is dangerous.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Rights asks what a process may do. The zero Account is whoever asks.
func (c Cluster) Rights(process string, who kube.Account, rights []kube.Right) Check {
	name := "kubernetes/rights/" + process
	return Check{Name: name, Lost: "what the " + process + " may do", Ask: func(ctx context.Context) ([]Finding, error) {
		lacking, err := kube.Lacking(ctx, c.Kubernetes, who, rights)
		if apierrors.IsForbidden(err) {
			return []Finding{{
				Check: name, State: Unknown, Found: err.Error(), Needed: "the right to create subjectaccessreviews.authorization.k8s.io",
				Without: "what the " + process + " may do isn't known here",
				Remedy:  "Run it as somebody who has that right. Each " + process + " finds out about itself as well: see its /readyz.",
			}}, nil
		}
		if err != nil {
			return nil, err
		}
		return []Finding{judgeRights(name, process, who, len(rights), lacking)}, nil
	}}
}

func judgeRights(name, process string, who kube.Account, asked int, lacking []kube.Right) Finding {
	f := Finding{
		Check: name, State: OK, Found: fmt.Sprintf("all %d", asked), Needed: fmt.Sprintf("the %d rights of docs/security.md", asked),
	}
	if len(lacking) == 0 {
		return f
	}
	f.State = Degraded
	var without []string
	for _, right := range lacking {
		if !right.Optional {
			f.State = Missing
		}
		if !slices.Contains(without, right.Without) {
			without = append(without, right.Without)
		}
	}
	subject := "it"
	if who != (kube.Account{}) {
		subject = "ServiceAccount " + who.Namespace + "/" + who.Name
	}
	f.Found = subject + " may not " + strings.Join(byObject(lacking), ", nor ")
	f.Without = strings.Join(without, "; ")
	if len(lacking) == asked {
		f.Found = fmt.Sprintf("%s has none of the %d", subject, asked)
		f.Without = "the " + process + " can do nothing in the cluster"
	}
	f.Remedy = "Apply deploy/base, and deploy/components/enforce for SICKBAY_MODE=enforce; then see that the " + process + " runs as that ServiceAccount."
	return f
}

// byObject puts rights to the same objects together: "list or watch pods".
func byObject(rights []kube.Right) []string {
	var objects []string
	verbs := map[string]string{}
	for _, right := range rights {
		object := strings.TrimPrefix(right.String(), right.Verb+" ")
		if verbs[object] == "" {
			objects = append(objects, object)
			verbs[object] = right.Verb
			continue
		}
		verbs[object] += " or " + right.Verb
	}
	for i, object := range objects {
		objects[i] = verbs[object] + " " + object
	}
	return objects
}

// beyond is a rule that no process of Sickbay ever makes: NoExecute, under a key of
// its own. It names a device of no driver, and is never more than a dry run.
func beyond() *resourcev1.DeviceTaintRule {
	driver, pool, device := "doctor.sickbay.dev", "none", "none"
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "sickbay-doctor"},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &driver, Pool: &pool, Device: &device},
			Taint:          resourcev1.DeviceTaint{Key: "doctor.sickbay.dev/beyond", Effect: resourcev1.DeviceTaintEffectNoExecute},
		},
	}
}

// errNoRules is returned where there is no API to make rules with.
var errNoRules = errors.New("the cluster serves no DeviceTaintRule API")

// tryBeyond asks, as a dry run, for a rule beyond what a mark is.
func (c Cluster) tryBeyond(ctx context.Context, as kube.Account) error {
	found, err := kube.Discover(ctx, c.Kubernetes.Discovery())
	if err != nil {
		return err
	}
	if !found.CanMark() {
		return errNoRules
	}
	gv := found.TaintRules.GroupVersion()
	rule := beyond()
	rule.TypeMeta = metav1.TypeMeta{APIVersion: gv.String(), Kind: "DeviceTaintRule"}
	body, err := json.Marshal(rule)
	if err != nil {
		return fmt.Errorf("encode a DeviceTaintRule: %w", err)
	}
	request := c.Kubernetes.CoreV1().RESTClient().Post().
		AbsPath("/apis", gv.Group, gv.Version, found.TaintRules.Resource).
		Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body(body)
	if as != (kube.Account{}) {
		request = request.SetHeader("Impersonate-User", as.User()).SetHeader("Impersonate-Group", as.Groups()...)
	}
	return request.Do(ctx).Error()
}

// Fence asks whether something keeps a worker's right to make rules to marks. The
// zero Account is whoever asks; another is impersonated.
func (c Cluster) Fence(who kube.Account) Check {
	name := "kubernetes/fence"
	return Check{Name: name, Lost: "whether the right to make marks is fenced in", Ask: func(ctx context.Context) ([]Finding, error) {
		f := Finding{Check: name, State: OK, Needed: "a ValidatingAdmissionPolicy that refuses everything but marks"}
		err := c.tryBeyond(ctx, who)
		switch {
		case errors.Is(err, errNoRules):
			f.Found = "there are no DeviceTaintRules here"
		case err == nil:
			f.State, f.Found = Degraded, "a worker may make any DeviceTaintRule (tried with a dry run of one with NoExecute)"
			f.Without = "whoever takes over a worker can evict every Pod that has a DRA device"
			f.Remedy = "Apply deploy/base/policy.yaml, and give the worker a ServiceAccount with sickbay in its name or its namespace's: those are bound."
		case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
			f.Found = "a rule beyond a mark is refused"
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "impersonate"):
			f.State, f.Found = Unknown, err.Error()
			f.Without = "whether the right to make marks is fenced in isn't known here"
			f.Remedy = "Run it as somebody who may impersonate ServiceAccounts. With SICKBAY_MODE=enforce each worker finds it out as well: see its /readyz."
		case apierrors.IsForbidden(err):
			f.Found = "it may make no rules at all"
		default:
			return nil, err
		}
		return []Finding{f}, nil
	}}
}

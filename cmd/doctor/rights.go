package doctor

// This file looks at what Sickbay's processes may do, and at the fence around the
// one right that is dangerous.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Rights asks what a process may do, in this mode if it has one. The zero Account is
// whoever asks.
func (c Cluster) Rights(process, mode string, who kube.Account, rights []kube.Right) Check {
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
		return []Finding{judgeRights(name, process, mode, who, len(rights), lacking)}, nil
	}}
}

func judgeRights(name, process, mode string, who kube.Account, asked int, lacking []kube.Right) Finding {
	assumed := ""
	if mode != "" {
		assumed = ", as SICKBAY_MODE=" + mode + " needs them"
	}
	f := Finding{
		Check: name, State: OK, Found: fmt.Sprintf("all %d%s", asked, assumed), Needed: fmt.Sprintf("the %d rights of docs/security.md%s", asked, assumed),
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

// beyond are rules that no process of Sickbay ever makes: marks of a device of no
// driver that are wrong in one thing each. They are never more than dry runs.
func beyond(like *resourcev1.DeviceTaintRule) map[string]*resourcev1.DeviceTaintRule {
	evicting, wider, foreign := like.DeepCopy(), like.DeepCopy(), like.DeepCopy()
	evicting.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	wider.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
	foreign.Spec.Taint.Key = "doctor.sickbay.dev/beyond"
	return map[string]*resourcev1.DeviceTaintRule{"with NoExecute": evicting, "of every device": wider, "with another key": foreign}
}

// noMark is a mark as Sickbay would write it, of a device of no driver.
func noMark() *resourcev1.DeviceTaintRule {
	driver, pool, device := probeDriver, "none", "none"
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name: "sickbay-doctor", Labels: map[string]string{kube.ManagedByLabel: kube.ManagedBy},
			Annotations: map[string]string{kube.AnnotationDevice: driver + "/" + pool + "/" + device},
		},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &driver, Pool: &pool, Device: &device},
			Taint:          resourcev1.DeviceTaint{Key: kube.TaintKey, Value: "1", Effect: resourcev1.DeviceTaintEffectNoSchedule},
		},
	}
}

// Fence asks whether something keeps a worker's right to make rules to marks. The
// zero Account is whoever asks; another is impersonated, and then it is tried as well
// whether a mark that is there can be made into something else.
func (c Cluster) Fence(who kube.Account) Check {
	name := "kubernetes/fence"
	return Check{Name: name, Lost: "whether the right to make marks is fenced in", Ask: func(ctx context.Context) ([]Finding, error) {
		f := Finding{Check: name, State: OK, Needed: "a ValidatingAdmissionPolicy that refuses everything but marks"}
		found, err := kube.Discover(ctx, c.Kubernetes.Discovery())
		if err != nil {
			return nil, err
		}
		if !found.CanMark() {
			f.Found = "there are no DeviceTaintRules here"
			return []Finding{f}, nil
		}
		let, fenced := []string(nil), false
		try := func(how string, rules map[string]*resourcev1.DeviceTaintRule, send func(*resourcev1.DeviceTaintRule) error) error {
			for what, rule := range rules {
				switch err := send(rule); {
				case err == nil:
					let = append(let, how+" one "+what)
				case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
					fenced = true
				case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "impersonate"):
					return nil // the right itself is missing
				default:
					return err
				}
			}
			return nil
		}
		err = try("make", beyond(noMark()), func(rule *resourcev1.DeviceTaintRule) error { return c.dryRun(ctx, found, who, "", rule) })
		// A worker that asks for itself may list no marks.
		if err == nil && who != (kube.Account{}) {
			for _, mark := range c.someMark(ctx, found) {
				err = try("make of a mark", beyond(mark), func(rule *resourcev1.DeviceTaintRule) error { return c.dryRun(ctx, found, who, mark.Name, rule) })
			}
		}
		switch {
		case apierrors.IsForbidden(err):
			f.State, f.Found = Unknown, err.Error()
			f.Without = "whether the right to make marks is fenced in isn't known here"
			f.Remedy = "Run it as somebody who may impersonate ServiceAccounts. With SICKBAY_MODE=enforce each worker finds it out as well: see its /readyz."
		case err != nil:
			return nil, err
		case len(let) > 0:
			f.State, f.Found = Degraded, "a worker may, as dry runs show, "+strings.Join(unique(let), ", and ")
			f.Without = "whoever takes over a worker can evict Pods that have DRA devices, or keep all devices from everybody"
			f.Remedy = "Apply deploy/base/policy.yaml, and give the worker a ServiceAccount with sickbay in its name or its namespace's: those are bound."
		case fenced:
			f.Found = "rules beyond a mark are refused"
		default:
			f.Found = "it may make no rules at all"
		}
		return []Finding{f}, nil
	}}
}

// someMark is a mark that is there, if there is one and whoever asks may list marks.
func (c Cluster) someMark(ctx context.Context, found kube.Capabilities) []*resourcev1.DeviceTaintRule {
	list, err := c.Dynamic.Resource(found.TaintRules).List(ctx, metav1.ListOptions{LabelSelector: kube.ManagedByLabel + "=" + kube.ManagedBy, Limit: 1})
	if err != nil {
		return nil // it is one trial less
	}
	for i := range list.Items {
		var mark resourcev1.DeviceTaintRule
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &mark); err == nil {
			return []*resourcev1.DeviceTaintRule{&mark}
		}
	}
	return nil
}

// dryRun asks for a rule, or for one in the place of another, as an account.
func (c Cluster) dryRun(ctx context.Context, found kube.Capabilities, as kube.Account, existing string, rule *resourcev1.DeviceTaintRule) error {
	gv := found.TaintRules.GroupVersion()
	rule.TypeMeta = metav1.TypeMeta{APIVersion: gv.String(), Kind: "DeviceTaintRule"}
	body, err := json.Marshal(rule)
	if err != nil {
		return fmt.Errorf("encode a DeviceTaintRule: %w", err)
	}
	path := []string{"/apis", gv.Group, gv.Version, found.TaintRules.Resource}
	client := c.Kubernetes.CoreV1().RESTClient()
	request := client.Post()
	if existing != "" {
		path, request = append(path, existing), client.Put()
	}
	request = request.AbsPath(path...).Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body(body)
	if as != (kube.Account{}) {
		request = request.SetHeader("Impersonate-User", as.User()).SetHeader("Impersonate-Group", as.Groups()...)
	}
	return request.Do(ctx).Error()
}

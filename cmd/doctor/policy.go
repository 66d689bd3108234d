package doctor

// This file looks at the policy: at what a process knows of it, and at what is in the
// cluster.

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/policywatch"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

const policyCheck = "kubernetes/policy"

// KnownPolicy tells what a process knows of the policy. One that has just begun reads it
// for the first time, and what it finds is what counts until the next look.
func KnownPolicy(namespace string, watch *policywatch.Watch) Check {
	return Check{Name: policyCheck, Lost: "which policy holds", Ask: func(ctx context.Context) ([]Finding, error) {
		_ = watch.Await(ctx) // if it isn't known by then, that is what is found
		return []Finding{judgePolicy(namespace, watch.Status())}, nil
	}}
}

// Policy asks for the policy itself, and whether it is right.
func (c Cluster) Policy(namespace string) Check {
	return Check{Name: policyCheck, Lost: "which policy holds", Ask: func(ctx context.Context) ([]Finding, error) {
		object, err := c.Kubernetes.CoreV1().ConfigMaps(namespace).Get(ctx, policy.ConfigMapName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return []Finding{judgePolicy(namespace, policywatch.Status{State: policywatch.None})}, nil
		case err != nil:
			return nil, err
		}
		status := policywatch.Status{State: policywatch.Read, Version: object.ResourceVersion}
		if _, err := policywatch.Parse(object); err != nil {
			status.State, status.Err = policywatch.Refused, err
		}
		return []Finding{judgePolicy(namespace, status)}, nil
	}}
}

// WorkerRights are Rights of the worker, and those to isolate nodes where the policy in the
// cluster has it do so.
func (c Cluster) WorkerRights(namespace, mode string, who kube.Account, rights []kube.Right) Check {
	check := c.Rights("worker", mode, who, rights)
	check.Ask = func(ctx context.Context) ([]Finding, error) {
		wanted := slices.Clone(rights)
		// A policy that is missing, wrong or hidden isolates nothing that is known here.
		if object, err := c.Kubernetes.CoreV1().ConfigMaps(namespace).Get(ctx, policy.ConfigMapName, metav1.GetOptions{}); err == nil {
			if said, err := policywatch.Parse(object); err == nil {
				base := policy.DefaultBase()
				base.Quarantine.Mode = quarantine.Mode(mode)
				if held := policy.New(base, said).Isolation(); held.Way != isolation.Off && held.Mode == quarantine.ModeEnforce {
					wanted = append(wanted, kube.NodeRights()...)
				}
			}
		}
		return c.Rights("worker", mode, who, wanted).Ask(ctx)
	}
	return check
}

func judgePolicy(namespace string, s policywatch.Status) Finding {
	name := namespace + "/" + policy.ConfigMapName
	f := Finding{Check: policyCheck, State: OK, Needed: "a policy in ConfigMap " + name + ", or none"}
	const keeps = "processes that read an earlier one go by that; one that starts only observes"
	why := ""
	if s.Err != nil {
		why = strings.ReplaceAll(s.Err.Error(), "\n", "; ")
	}
	switch s.State {
	case policywatch.None:
		f.Found = "none; the environment holds"
	case policywatch.Read:
		f.Found = "it is in force, version " + s.Version
	case policywatch.Refused:
		f.State, f.Found, f.Without = Degraded, "ConfigMap "+name+" is wrong: "+why, keeps
		f.Remedy = "Mend it; sickbay policy check FILE tells what is wrong before it is applied."
	case policywatch.Deleted:
		f.State, f.Found, f.Without = Degraded, "ConfigMap "+name+" was deleted", "the last one holds until the process ends, and the environment after that"
		f.Remedy = "Put it back, or restart starters and workers to go by the environment."
	case policywatch.Unreadable:
		f.State, f.Found, f.Without = Degraded, why, "the policy isn't known, and what held before, or the environment, holds"
		f.Remedy = "Apply deploy/base: it grants list and watch on this ConfigMap."
	default:
		f.State, f.Found, f.Without = Unknown, "it wasn't read yet", "nothing is enforced until it is known what holds"
		f.Remedy = "See that the API server answers."
	}
	return f
}

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/policy"
)

// Right is one thing that a process of Sickbay has to be allowed. deploy/ grants
// these and no others; a test compares.
type Right struct {
	Group, Resource, Verb string
	// Namespace is where; empty is everywhere. Name is the one object, or empty.
	Namespace, Name string
	// Without is what doesn't work without it. Optional is set where everything else
	// works all the same.
	Without  string
	Optional bool
}

func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// MemoryName names the ConfigMap in which the starters that share a Lease keep who ever
// reported health.
func MemoryName(lease string) string { return lease + "-known" }

// StarterRights are what a starter does in a cluster. lease is the Lease by which
// one of several is elected, as namespace and name; without a name there is none.
func StarterRights(leaseNamespace, lease string) []Right {
	var rights []Right
	for _, watched := range []struct{ group, resource, without string }{
		{"", "pods", "no health is seen"},
		{"", "nodes", "nobody knows which nodes are down, and what device plugins offer"},
		{resourceGroup, "resourceclaims", "health isn't led back to devices"},
		{resourceGroup, "resourceslices", "nobody knows which devices there are"},
		{resourceGroup, taintRules, "marks that lost their case don't get it back"},
	} {
		for _, verb := range []string{"list", "watch"} {
			rights = append(rights, Right{Group: watched.group, Resource: watched.resource, Verb: verb, Without: watched.without})
		}
	}
	rights = append(rights, Right{
		Group: leaseGroup, Resource: "leases", Verb: "list", Namespace: corev1.NamespaceNodeLease, Optional: true,
		Without: "a node that falls silent is noticed only once the node controller says so",
	})
	if lease == "" {
		return rights
	}
	const forgets = "a lost health is taken for one that never was, after a restart of all starters"
	rights = append(rights,
		Right{Resource: "configmaps", Verb: "create", Namespace: leaseNamespace, Without: forgets, Optional: true},
		Right{Resource: "configmaps", Verb: "get", Namespace: leaseNamespace, Name: MemoryName(lease), Without: forgets, Optional: true},
		Right{Resource: "configmaps", Verb: "update", Namespace: leaseNamespace, Name: MemoryName(lease), Without: forgets, Optional: true},
	)
	const without = "none of several starters becomes the active one"
	return append(rights,
		Right{Group: leaseGroup, Resource: "leases", Verb: "create", Namespace: leaseNamespace, Without: without},
		Right{Group: leaseGroup, Resource: "leases", Verb: "get", Namespace: leaseNamespace, Name: lease, Without: without},
		Right{Group: leaseGroup, Resource: "leases", Verb: "update", Namespace: leaseNamespace, Name: lease, Without: without},
	)
}

const leaseGroup = "coordination.k8s.io"

// WorkerRights are what a worker does in a cluster; those to make marks are wanted
// where it makes them.
func WorkerRights(marks bool) []Right {
	const looks = "looks fail, and nothing good of a device is believed"
	const tells = "no Kubernetes Event tells of a decision"
	rights := []Right{
		{Resource: "pods", Verb: "get", Without: looks},
		{Resource: "pods", Verb: "list", Without: looks},
		{Resource: "nodes", Verb: "get", Without: looks},
		{Group: leaseGroup, Resource: "leases", Verb: "get", Namespace: corev1.NamespaceNodeLease, Without: looks},
		{Group: resourceGroup, Resource: "resourceclaims", Verb: "get", Without: looks},
		{Group: resourceGroup, Resource: "resourceclaims", Verb: "list", Without: looks},
		{Group: resourceGroup, Resource: "resourceslices", Verb: "list", Without: looks},
		{Group: resourceGroup, Resource: taintRules, Verb: "get", Without: looks},
		{Group: resourceGroup, Resource: taintRules, Verb: "list", Without: "permits wait for a starter to tell which marks exist whenever the budgets were lost"},
		{Resource: "events", Verb: "create", Without: tells, Optional: true},
		{Resource: "events", Verb: "patch", Without: tells, Optional: true},
	}
	if !marks {
		return rights
	}
	for verb, without := range map[string]string{
		"create": "no mark is made: bad devices are given to new Pods",
		"update": "a mark doesn't follow its case",
		"delete": "a device that is well again, or gone for good, stays marked",
	} {
		rights = append(rights, Right{Group: resourceGroup, Resource: taintRules, Verb: verb, Without: without})
	}
	slices.SortFunc(rights[len(rights)-3:], func(a, b Right) int { return strings.Compare(a.Verb, b.Verb) })
	return rights
}

// NodeRights are what a worker does to isolate whole nodes, where a policy says so.
func NodeRights() []Right {
	return []Right{
		{Resource: "nodes", Verb: "list", Without: "the budgets learn which nodes are isolated from a starter alone", Optional: true},
		{Resource: "nodes", Verb: "patch", Without: "no node is isolated that the policy isolates, and none is given back; deploy/components/node-isolation grants it", Optional: true},
	}
}

// PokeRights are what starter and worker do to watch Pods, where there are any; without
// a namespace there are none.
func PokeRights(namespace string) []Right {
	if namespace == "" {
		return nil
	}
	return []Right{{
		Resource: "pods", Verb: "patch", Namespace: namespace, Optional: true,
		Without: "no kubelet is asked for a reading of now: what it doesn't report by itself shows a minute and a half later",
	}}
}

// ProbeRights are what a worker does to prove devices healthy, where it does; without a
// namespace it doesn't.
func ProbeRights(namespace string) []Right {
	if namespace == "" {
		return nil
	}
	const proves = "no device is proven healthy and given back: what is quarantined stays out; deploy/components/enforce grants it"
	const clears = "what was made to prove a device healthy stays, and has the device"
	return []Right{
		{Group: batchGroup, Resource: "jobs", Verb: "list", Namespace: namespace, Without: proves},
		{Group: batchGroup, Resource: "jobs", Verb: "create", Namespace: namespace, Without: proves},
		{Group: batchGroup, Resource: "jobs", Verb: "delete", Namespace: namespace, Without: clears},
		{Group: resourceGroup, Resource: "resourceclaims", Verb: "create", Namespace: namespace, Without: proves},
		{Group: resourceGroup, Resource: "resourceclaims", Verb: "delete", Namespace: namespace, Without: clears},
		{Resource: "pods", Verb: "patch", Namespace: namespace, Without: proves},
	}
}

const batchGroup = "batch"

// PolicyRights are what starter and worker do to know the policy: they watch the one
// ConfigMap that it is in.
func PolicyRights(namespace string) []Right {
	const without = "the policy isn't known, and what the environment says holds"
	return []Right{
		{Resource: "configmaps", Verb: "list", Namespace: namespace, Name: policy.ConfigMapName, Without: without, Optional: true},
		{Resource: "configmaps", Verb: "watch", Namespace: namespace, Name: policy.ConfigMapName, Without: without, Optional: true},
	}
}

// Account is a ServiceAccount whose rights are asked for; the zero value is
// whoever asks.
type Account struct{ Namespace, Name string }

// User is the account's name as the API server has it, and Groups are its groups.
func (a Account) User() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Groups are the groups that every token of the account is in.
func (a Account) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"}
}

// Lacking asks the API server which of these rights somebody lacks. Asking for
// oneself is open to everybody; asking for another takes the right to create
// SubjectAccessReviews.
func Lacking(ctx context.Context, client kubernetes.Interface, who Account, rights []Right) ([]Right, error) {
	var lacking []Right
	for _, right := range rights {
		wanted := &authorizationv1.ResourceAttributes{
			Group: right.Group, Resource: right.Resource, Verb: right.Verb, Namespace: right.Namespace, Name: right.Name,
		}
		allowed, err := allowed(ctx, client, who, wanted)
		if err != nil {
			return nil, fmt.Errorf("ask whether %s is allowed: %w", right, err)
		}
		if !allowed {
			lacking = append(lacking, right)
		}
	}
	return lacking, nil
}

func allowed(ctx context.Context, client kubernetes.Interface, who Account, wanted *authorizationv1.ResourceAttributes) (bool, error) {
	if who == (Account{}) {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: wanted},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: wanted, User: who.User(), Groups: who.Groups()},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

package kube

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Spoken is a resource of the Kubernetes API that Sickbay speaks.
type Spoken struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	// Versions are those that it can do with, the best first.
	Versions []string `json:"versions"`
}

// APIs lists what starter and worker speak: the resources that they need rights for.
func APIs() []Spoken {
	var all []Spoken
	for _, right := range slices.Concat(StarterRights("", "any"), WorkerRights(true), PolicyRights(""), ProbeRights("any")) {
		spoken := Spoken{Group: right.Group, Resource: right.Resource, Versions: versionsOf(right.Group, right.Resource)}
		if !slices.ContainsFunc(all, func(s Spoken) bool { return s.Group == spoken.Group && s.Resource == spoken.Resource }) {
			all = append(all, spoken)
		}
	}
	slices.SortFunc(all, func(a, b Spoken) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

// versionsOf are the versions of the types by which a resource is read.
func versionsOf(group, resource string) []string {
	switch {
	case resource == taintRules:
		return slices.Clone(taintRuleVersions)
	case group == corev1.GroupName:
		return []string{corev1.SchemeGroupVersion.Version}
	case group == resourceGroup:
		return []string{resourcev1.SchemeGroupVersion.Version}
	case group == batchGroup:
		return []string{batchv1.SchemeGroupVersion.Version}
	case group == leaseGroup:
		return []string{coordinationv1.SchemeGroupVersion.Version}
	}
	return nil
}

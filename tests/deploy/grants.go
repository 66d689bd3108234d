package deploy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Right is one verb on one resource: what a role grants and what a call needs.
type Right struct {
	Group, Resource, Subresource string
	// Namespace is empty for all namespaces, Name for all names.
	Namespace, Name string
	Verb            string
}

func (r Right) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Name != "" {
		resource += " " + r.Name
	}
	where := "in all namespaces"
	if r.Namespace != "" {
		where = "in " + r.Namespace
	}
	return fmt.Sprintf("%s %s %s", r.Verb, resource, where)
}

// Compare orders rights by resource, then namespace, name and verb.
func (r Right) Compare(other Right) int {
	return cmp.Or(cmp.Compare(r.Group, other.Group), cmp.Compare(r.Resource, other.Resource), cmp.Compare(r.Subresource, other.Subresource),
		cmp.Compare(r.Namespace, other.Namespace), cmp.Compare(r.Name, other.Name), cmp.Compare(r.Verb, other.Verb))
}

// RightSet is a set of rights.
type RightSet map[Right]bool

// Grants are the rights of each account, by its name for the API server.
type Grants map[string]RightSet

// RoleRights are what a ClusterRole among objects lets those do that it is bound to.
func RoleRights(objects []*unstructured.Unstructured, name string) (RightSet, error) {
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" || object.GetName() != name {
			continue
		}
		var role rbacv1.ClusterRole
		if err := convert(object, &role); err != nil {
			return nil, err
		}
		rights := RightSet{}
		for _, rule := range role.Rules {
			for _, right := range expand(rule) {
				rights[right] = true
			}
		}
		return rights, nil
	}
	return nil, fmt.Errorf("no ClusterRole %s is shipped", name)
}

// GrantsOf reads what objects grant to ServiceAccounts.
func GrantsOf(objects []*unstructured.Unstructured) (Grants, error) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
			var role rbacv1.ClusterRole
			if err := convert(object, &role); err != nil {
				return nil, err
			}
			rules[kind+" "+object.GetNamespace()+"/"+object.GetName()] = role.Rules
		}
	}
	granted := Grants{}
	for _, object := range objects {
		if kind := object.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		var binding rbacv1.RoleBinding
		if err := convert(object, &binding); err != nil {
			return nil, err
		}
		role := binding.RoleRef.Kind + " /" + binding.RoleRef.Name
		if binding.RoleRef.Kind == "Role" {
			role = "Role " + object.GetNamespace() + "/" + binding.RoleRef.Name
		}
		bound, known := rules[role]
		if !known {
			return nil, fmt.Errorf("%s %s binds %s, which isn't shipped", object.GetKind(), object.GetName(), role)
		}
		for _, subject := range binding.Subjects {
			if subject.Kind != rbacv1.ServiceAccountKind {
				return nil, fmt.Errorf("%s %s binds %s %s; only ServiceAccounts are Sickbay's", object.GetKind(), object.GetName(), subject.Kind, subject.Name)
			}
			user := "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
			if granted[user] == nil {
				granted[user] = RightSet{}
			}
			for _, rule := range bound {
				for _, right := range expand(rule) {
					right.Namespace = object.GetNamespace()
					granted[user][right] = true
				}
			}
		}
	}
	return granted, nil
}

// expand writes a rule out, a right for each combination of what it lists.
func expand(rule rbacv1.PolicyRule) (rights []Right) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				names := rule.ResourceNames
				if len(names) == 0 {
					names = []string{""}
				}
				for _, name := range names {
					rights = append(rights, Right{Group: group, Resource: resource, Subresource: subresource, Name: name, Verb: verb})
				}
			}
		}
	}
	return rights
}

// Sorted are the rights in their order.
func (s RightSet) Sorted() []Right {
	rights := make([]Right, 0, len(s))
	for right := range s {
		rights = append(rights, right)
	}
	slices.SortFunc(rights, Right.Compare)
	return rights
}

func convert(object *unstructured.Unstructured, to any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, to); err != nil {
		return fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

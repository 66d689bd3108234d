package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

// Accounts are how Sickbay's processes reach a stack's cluster: as the
// ServiceAccounts that are shipped, with the rights that are shipped.
type Accounts struct {
	Starter, Worker Account
	// Granted is what they may do.
	Granted Grants
}

// Account is one ServiceAccount.
type Account struct {
	// User is its name for the API server.
	User string
	// Kubeconfig is the path of one with its token, Config the same for a client.
	Kubeconfig string
	Config     *rest.Config
}

// Enforce is the component that lets Sickbay make marks and give devices back, Marks its
// part for the first of that, Watch the one that lets it poke
// watch Pods, and NodeIsolation the one that lets it isolate whole nodes.
const (
	Enforce       = "enforce"
	Marks         = "enforce/marks"
	Watch         = "watch"
	NodeIsolation = "node-isolation"
)

// Grant applies the rights that are shipped with deploy/base and components of it to
// a stack's cluster, and returns the accounts once the API server goes by them. The
// admission policies are in force up to a second later. What was granted already stays,
// and isn't granted again.
func Grant(ctx context.Context, st *stack.Stack, components ...string) (*Accounts, error) {
	granted.Lock()
	defer granted.Unlock()
	for _, g := range granted.stacks[st] {
		if !slices.ContainsFunc(components, func(c string) bool { return !slices.Contains(g.components, c) }) {
			return g.accounts, nil
		}
	}
	accounts, err := grantAnew(ctx, st, components)
	if err == nil {
		granted.stacks[st] = append(granted.stacks[st], grant{components, accounts})
	}
	return accounts, err
}

type grant struct {
	components []string
	accounts   *Accounts
}

// granted is what this process granted in its stacks.
var granted = struct {
	sync.Mutex
	stacks map[*stack.Stack][]grant
}{stacks: map[*stack.Stack][]grant{}}

func grantAnew(ctx context.Context, st *stack.Stack, components []string) (*Accounts, error) {
	objects, err := Rights(ctx, Overlay{Components: components})
	if err != nil {
		return nil, err
	}
	granted, err := GrantsOf(objects)
	if err != nil {
		return nil, err
	}
	if err := ApplyRights(ctx, st.RESTConfig(), objects); err != nil {
		return nil, err
	}
	accounts := &Accounts{Granted: granted}
	var work sync.WaitGroup
	failures := make([]error, 3)
	for i, account := range []*Account{&accounts.Starter, &accounts.Worker} {
		name := []string{"sickbay-starter", "sickbay-worker"}[i]
		work.Go(func() {
			account.User = "system:serviceaccount:" + Namespace + ":" + name
			if account.Kubeconfig, failures[i] = st.ServiceAccountKubeconfig(ctx, Namespace, name); failures[i] == nil {
				if account.Config, failures[i] = clientcmd.BuildConfigFromFlags("", account.Kubeconfig); failures[i] == nil {
					account.Config.QPS = -1 // as stack.RESTConfig
				}
			}
		})
	}
	work.Go(func() { failures[2] = awaitGranted(ctx, st.RESTConfig(), granted) })
	work.Wait()
	return accounts, errors.Join(failures...)
}

// Rights are the objects of an overlay that make its rights: everything but what
// runs.
func Rights(ctx context.Context, overlay Overlay) ([]*unstructured.Unstructured, error) {
	rendered.Lock()
	defer rendered.Unlock()
	name := fmt.Sprintf("%+v", overlay)
	if rights, done := rendered.rights[name]; done {
		return rights, nil
	}
	folder, err := os.MkdirTemp("", "sickbay-overlay-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if err := overlay.Write(folder); err != nil {
		return nil, err
	}
	kubectl, err := FindKubectl(ctx, "")
	if err != nil {
		return nil, err
	}
	objects, err := kubectl.Render(ctx, folder)
	if err != nil {
		return nil, err
	}
	rights := slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		_, right := kinds[object.GetKind()]
		return !right
	})
	rendered.rights[name] = rights
	return rights, nil
}

// rendered are the rights of the overlays that were asked for: many stacks of one
// process get the same.
var rendered = struct {
	sync.Mutex
	rights map[string][]*unstructured.Unstructured
}{rights: map[string][]*unstructured.Unstructured{}}

// kinds are those that rights are made of.
var kinds = map[string]struct {
	resource   string
	namespaced bool
}{
	"Namespace":          {"namespaces", false},
	"ServiceAccount":     {"serviceaccounts", true},
	"Role":               {"roles", true},
	"RoleBinding":        {"rolebindings", true},
	"ClusterRole":        {"clusterroles", false},
	"ClusterRoleBinding": {"clusterrolebindings", false},
	// Pods that Sickbay makes have to be of it.
	"PriorityClass":                    {"priorityclasses", false},
	"ValidatingAdmissionPolicy":        {"validatingadmissionpolicies", false},
	"ValidatingAdmissionPolicyBinding": {"validatingadmissionpolicybindings", false},
}

// ApplyRights writes what Rights returned into a cluster, over what is there.
func ApplyRights(ctx context.Context, admin *rest.Config, objects []*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		return err
	}
	apply := func(object *unstructured.Unstructured) error {
		kind, right := kinds[object.GetKind()]
		if !right {
			return fmt.Errorf("apply %s %s: a %s is no right", object.GetKind(), object.GetName(), object.GetKind())
		}
		gvr := object.GroupVersionKind().GroupVersion().WithResource(kind.resource)
		var target dynamic.ResourceInterface = client.Resource(gvr)
		if kind.namespaced {
			target = client.Resource(gvr).Namespace(object.GetNamespace())
		}
		_, err := target.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "deployed", Force: true})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		return nil
	}
	// A namespace comes before what lies in it.
	var work sync.WaitGroup
	failures := make([]error, len(objects))
	for i, object := range objects {
		if object.GetKind() == "Namespace" {
			failures[i] = apply(object)
		}
	}
	for i, object := range objects {
		if object.GetKind() != "Namespace" {
			work.Go(func() { failures[i] = apply(object) })
		}
	}
	work.Wait()
	return errors.Join(failures...)
}

// awaitGranted waits until the API server's authorizer has seen every right.
func awaitGranted(ctx context.Context, admin *rest.Config, granted Grants) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("not within 10 s"))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for user, rights := range granted {
		for right := range rights {
			for {
				allowed, err := Allows(ctx, client, user, right)
				if allowed {
					break
				}
				if err == nil {
					select {
					case <-ticker.C:
						continue
					case <-ctx.Done():
						err = context.Cause(ctx)
					}
				}
				return fmt.Errorf("wait for %s to be let %s: %w", user, right, err)
			}
		}
	}
	return nil
}

// Allows asks an API server whether it lets a user use a right.
func Allows(ctx context.Context, client kubernetes.Interface, user string, right Right) (bool, error) {
	groups := []string{"system:authenticated"}
	if name, account := strings.CutPrefix(user, "system:serviceaccount:"); account {
		namespace, _, _ := strings.Cut(name, ":")
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: right.Group, Resource: right.Resource, Subresource: right.Subresource,
			Namespace: right.Namespace, Name: right.Name, Verb: right.Verb,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

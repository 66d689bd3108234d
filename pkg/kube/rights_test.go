package kube_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// What the doctor asks for is what deploy/ grants, right by right.
func TestTheRightsThatAreAskedForAreThoseThatAreShipped(t *testing.T) {
	base, marks := shipped(t, "base/rbac.yaml"), shipped(t, "components/enforce/marks/rbac.yaml")
	nodes := shipped(t, "components/node-isolation/rbac.yaml")
	pokes := shipped(t, "components/watch/rbac.yaml")
	probes := shipped(t, "components/enforce/recovery/rbac.yaml")
	for _, c := range []struct {
		account string
		granted []string
		wanted  []kube.Right
	}{
		{"starter", base["sickbay-starter"], append(kube.StarterRights("sickbay", "sickbay-starter"), kube.PolicyRights("sickbay")...)},
		{"worker", base["sickbay-worker"], append(kube.WorkerRights(false), kube.PolicyRights("sickbay")...)},
		{"starter", slices.Concat(base["sickbay-starter"], pokes["sickbay-starter"]), slices.Concat(kube.StarterRights("sickbay", "sickbay-starter"), kube.PolicyRights("sickbay"), kube.PokeRights("sickbay-watch"))},
		{"worker", slices.Concat(base["sickbay-worker"], pokes["sickbay-worker"]), slices.Concat(kube.WorkerRights(false), kube.PolicyRights("sickbay"), kube.PokeRights("sickbay-watch"))},
		{"worker", slices.Concat(base["sickbay-worker"], probes["sickbay-worker"]), slices.Concat(kube.WorkerRights(false), kube.PolicyRights("sickbay"), kube.ProbeRights("sickbay-probes"))},
		{"worker", slices.Concat(base["sickbay-worker"], nodes["sickbay-worker"]), slices.Concat(kube.WorkerRights(false), kube.PolicyRights("sickbay"), kube.NodeRights())},
		{"worker", slices.Concat(base["sickbay-worker"], marks["sickbay-worker"]), append(kube.WorkerRights(true), kube.PolicyRights("sickbay")...)},
	} {
		var wanted []string
		for _, right := range c.wanted {
			wanted = append(wanted, right.String())
		}
		for _, right := range c.granted {
			if !slices.Contains(wanted, right) {
				t.Errorf("deploy lets the %s %s, which pkg/kube doesn't know of", c.account, right)
			}
		}
		for _, right := range wanted {
			if !slices.Contains(c.granted, right) {
				t.Errorf("deploy doesn't let the %s %s", c.account, right)
			}
		}
	}
}

// shipped is what a file of deploy/ grants to each ServiceAccount.
func shipped(t *testing.T, name string) map[string][]string {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "deploy", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	roles := map[string][]rbacv1.PolicyRule{}
	var bindings []rbacv1.RoleBinding
	documents := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(file), 4096)
	for {
		// A ClusterRole has all fields of a Role and one more, and the bindings
		// likewise.
		var object struct {
			rbacv1.RoleBinding
			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		err := documents.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch object.Kind {
		case "Role", "ClusterRole":
			roles[object.Kind+"/"+object.Namespace+"/"+object.Name] = object.Rules
		case "RoleBinding", "ClusterRoleBinding":
			bindings = append(bindings, object.RoleBinding)
		}
	}
	granted := map[string][]string{}
	for _, binding := range bindings {
		for _, subject := range binding.Subjects {
			for _, rule := range roles[binding.RoleRef.Kind+"/"+binding.Namespace+"/"+binding.RoleRef.Name] {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							right := kube.Right{Group: group, Resource: resource, Verb: verb, Namespace: binding.Namespace}
							if len(rule.ResourceNames) > 0 {
								right.Name = rule.ResourceNames[0]
							}
							granted[subject.Name] = append(granted[subject.Name], right.String())
						}
					}
				}
			}
		}
	}
	if len(granted) == 0 {
		t.Fatalf("%s grants nothing", name)
	}
	return granted
}

// Package deploy renders and applies the manifests that are shipped, by kubectl as a
// person would, and overlays of them that a test makes.
//
// It owns how kubectl is found and run and what such an overlay looks like. It must
// never know what a manifest says: what is shipped is what is applied.
package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	kustomize "sigs.k8s.io/yaml"

	"github.com/sickbay-dev/sickbay/tests/checks"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// Namespace is where the manifests put everything that has a namespace.
const Namespace = "sickbay"

// Kubectl is kubectl, and the cluster that it talks to.
type Kubectl struct {
	path string
	// Kubeconfig may be empty for what needs no cluster.
	Kubeconfig string
}

// FindKubectl builds kubectl, if it isn't built.
func FindKubectl(ctx context.Context, kubeconfig string) (Kubectl, error) {
	parts, err := stack.CommandParts()
	if err != nil {
		return Kubectl{}, err
	}
	built, err := stack.Build(ctx, nil, parts...)
	if err != nil {
		return Kubectl{}, err
	}
	return Kubectl{path: built[parts[0]], Kubeconfig: kubeconfig}, nil
}

// Folder is where kubectl is, for a PATH.
func (k Kubectl) Folder() string { return filepath.Dir(k.path) }

// Run runs kubectl. What it says on standard error is warned: with exit code 0 these
// are the API server's warnings.
func (k Kubectl) Run(ctx context.Context, args ...string) (said, warned string, err error) {
	command := exec.CommandContext(ctx, k.path, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+k.Kubeconfig)
	var out, failed bytes.Buffer
	command.Stdout, command.Stderr = &out, &failed
	if err := command.Run(); err != nil {
		return out.String(), failed.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(failed.Bytes()))
	}
	return out.String(), failed.String(), nil
}

// Apply applies a folder of manifests as `kubectl apply -k` does, by the server and
// with unknown fields refused. A warning is an error too.
func (k Kubectl) Apply(ctx context.Context, folder string, flags ...string) error {
	args := append([]string{"apply", "--server-side", "--validate=strict", "-k", folder}, flags...)
	_, warned, err := k.Run(ctx, args...)
	if err == nil && warned != "" {
		err = fmt.Errorf("apply %s: the API server warns: %s", folder, warned)
	}
	return err
}

// Render is what a folder of manifests comes to.
func (k Kubectl) Render(ctx context.Context, folder string) ([]*unstructured.Unstructured, error) {
	text, _, err := k.Run(ctx, "kustomize", folder)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what %s renders to: %w", folder, err)
		}
		objects = append(objects, object)
	}
}

// Folder is a folder below deploy/, by its path there.
func Folder(name string) (string, error) {
	root, err := checks.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "deploy", filepath.FromSlash(name)), nil
}

// Folders lists the folders of a kind, "overlays" or "components", below deploy/.
func Folders(kind string) ([]string, error) {
	root, err := Folder(kind)
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(root, "*", "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range found {
		names = append(names, kind+"/"+filepath.Base(filepath.Dir(path)))
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no folder in %s has a kustomization.yaml", root)
	}
	return names, nil
}

// Overlay is a kustomization over what is shipped, as a site writes one.
type Overlay struct {
	// Over is what it stands on, below deploy/: "base" if empty.
	Over string
	// Components are below deploy/components.
	Components []string
	// Settings are variables of the ConfigMap.
	Settings map[string]string
	// Namespace and Prefix are what a site may try to rename everything by.
	Namespace, Prefix string
	// Patches are strategic merge patches, each with what it is for.
	Patches []Patch
}

// Patch is a strategic merge patch of all objects of a kind, or of one.
type Patch struct {
	Kind, Name string
	Patch      string
}

// Write writes the overlay into a folder.
func (o Overlay) Write(folder string) error {
	relative := func(name string) (string, error) {
		target, err := Folder(name)
		if err != nil {
			return "", err
		}
		// Kustomize follows relative paths only, and those from where a link leads.
		real, err := filepath.EvalSymlinks(folder)
		if err != nil {
			return "", err
		}
		return filepath.Rel(real, target)
	}
	over := o.Over
	if over == "" {
		over = "base"
	}
	base, err := relative(over)
	if err != nil {
		return err
	}
	document := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{base},
	}
	var components []string
	for _, name := range o.Components {
		component, err := relative("components/" + name)
		if err != nil {
			return err
		}
		components = append(components, component)
	}
	document["components"] = components
	if o.Namespace != "" {
		document["namespace"] = o.Namespace
	}
	if o.Prefix != "" {
		document["namePrefix"] = o.Prefix
	}
	if len(o.Settings) > 0 {
		var literals []string
		for name, value := range o.Settings {
			literals = append(literals, name+"="+value)
		}
		slices.Sort(literals)
		document["configMapGenerator"] = []map[string]any{{
			"name": "sickbay", "namespace": Namespace, "behavior": "merge", "literals": literals,
		}}
	}
	var patches []map[string]any
	for _, p := range o.Patches {
		patches = append(patches, map[string]any{"target": map[string]string{"kind": p.Kind, "name": p.Name}, "patch": p.Patch})
	}
	document["patches"] = patches
	content, err := kustomize.Marshal(document)
	if err != nil {
		return fmt.Errorf("write an overlay of %s: %w", over, err)
	}
	return os.WriteFile(filepath.Join(folder, "kustomization.yaml"), content, 0o600)
}

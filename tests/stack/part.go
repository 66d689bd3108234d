package stack

import (
	"fmt"
	"path"
	"strings"
)

// Part names one program that can be built: the module under tests/parts, a
// slash, and the program's file name.
type Part string

// The parts that come in one version only. Those of Kubernetes: KubePart.
const (
	PartTemporal       Part = "temporal/temporal-server"
	PartTemporalCLI    Part = "temporal-cli/temporal"
	PartCollector      Part = "collector/otlp-collector"
	PartContainerd     Part = "containerd/containerd"
	PartContainerdShim Part = "containerd/containerd-shim-runc-v2"
	PartCtr            Part = "containerd/ctr"
)

// temporalCLIVersion is the newest release of the temporal CLI that builds from
// the module proxy.
const temporalCLIVersion = "v1.5.1"

// KubePart is a program of Kubernetes ("kube-apiserver", "kubelet" …) or the
// "etcd" that goes with it, for a version as in Options.Kubernetes.
func KubePart(kubernetes, program string) (Part, error) {
	r, err := releaseFor(kubernetes)
	if err != nil {
		return "", err
	}
	return Part("kube-" + r.version + "/" + program), nil
}

// ControlPlaneParts are what a control plane of that version runs on.
func ControlPlaneParts(kubernetes string) ([]Part, error) {
	return kubeParts(kubernetes, "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
}

// NodeParts are what a real node of that version runs on, beside runc and the
// CNI plugins, which the operating system brings.
func NodeParts(kubernetes string) ([]Part, error) {
	parts, err := kubeParts(kubernetes, "kubelet")
	if err != nil {
		return nil, err
	}
	return append(parts, PartContainerd, PartContainerdShim, PartCtr), nil
}

// CommandParts are what a person types at a terminal: kubectl, of the newest version,
// and temporal.
func CommandParts() ([]Part, error) {
	versions := Versions()
	kubectl, err := KubePart(versions[len(versions)-1], "kubectl")
	if err != nil {
		return nil, err
	}
	return []Part{kubectl, PartTemporalCLI}, nil
}

func kubeParts(kubernetes string, programs ...string) ([]Part, error) {
	var parts []Part
	for _, program := range programs {
		part, err := KubePart(kubernetes, program)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// module is the folder under tests/parts.
func (p Part) module() string { return path.Dir(string(p)) }

// program is the file name of the binary.
func (p Part) program() string { return path.Base(string(p)) }

// recipe is how a part is built. Everything in it is part of the cache key.
type recipe struct {
	// pkg is the main package: an import path, or "." for the module's own.
	pkg string
	// version, if set, makes it `go install pkg@version` outside any module.
	version string
	tags    string
	ldflags string
}

// recipeFor knows every part.
func recipeFor(p Part) (recipe, error) {
	const strip = "-s -w"
	switch module := p.module(); {
	case strings.HasPrefix(module, "kube-"):
		r, err := releaseFor(strings.TrimPrefix(module, "kube-"))
		if err != nil {
			return recipe{}, fmt.Errorf("part %s: %w", p, err)
		}
		if p.program() == "etcd" {
			return recipe{pkg: "go.etcd.io/etcd/server/v3", ldflags: strip}, nil
		}
		return recipe{pkg: "k8s.io/kubernetes/cmd/" + p.program(), ldflags: strip + kubernetesVersion(r)}, nil
	case p == PartTemporal, p == PartCollector:
		return recipe{pkg: ".", ldflags: strip}, nil
	case p == PartTemporalCLI:
		return recipe{pkg: "github.com/temporalio/cli/cmd/temporal", version: temporalCLIVersion, ldflags: strip}, nil
	case module == "containerd":
		return recipe{
			pkg: "github.com/containerd/containerd/v2/cmd/" + p.program(),
			// The snapshotters that need kernel modules or C libraries.
			tags:    "no_btrfs no_devmapper no_zfs no_aufs",
			ldflags: strip + " -X github.com/containerd/containerd/v2/version.Version=v2.3.7",
		}, nil
	}
	return recipe{}, fmt.Errorf("part %q is unknown", p)
}

// kubernetesVersion stamps what the release build stamps. Without it the parts
// call themselves v0.0.0 and refuse to work with each other's skew rules.
func kubernetesVersion(r release) string {
	_, minor, _ := strings.Cut(r.minor, ".")
	var flags strings.Builder
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, stamp := range []string{
			"gitVersion=v" + r.version, "gitMajor=1", "gitMinor=" + minor,
			"gitCommit=modules", "gitTreeState=clean", "buildDate=1970-01-01T00:00:00Z",
		} {
			fmt.Fprintf(&flags, " -X %s.%s", pkg, stamp)
		}
	}
	return flags.String()
}

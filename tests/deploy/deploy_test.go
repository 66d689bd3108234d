package deploy_test

// This file holds the manifests to each other and to what the processes read: nothing
// in it needs a cluster.

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/product"
)

// afterwards is what a process may take to end beyond what SICKBAY_STOP_TIMEOUT and
// SICKBAY_DRAIN give its own work: cmd's stopMargin of 5 s, and twice closeLimit, 2 s.
const afterwards = 9 * time.Second

// redis is where a site has its directory: a password for it wants one.
var redis = map[string]string{"SICKBAY_REDIS_ADDRESSES": "redis.example.com:6379"}

// shipped is what a person can apply: the base alone, with each component, with all,
// and each overlay.
func shipped(t *testing.T) map[string]string {
	t.Helper()
	components, err := deploy.Folders("components")
	must(t, err)
	overlays, err := deploy.Folders("overlays")
	must(t, err)
	folders := map[string]string{}
	for _, name := range append(overlays, "base") {
		folder, err := deploy.Folder(name)
		must(t, err)
		folders[name] = folder
	}
	var all []string
	for _, name := range components {
		all = append(all, strings.TrimPrefix(name, "components/"))
		folders[name] = t.TempDir()
		must(t, deploy.Overlay{Components: all[len(all)-1:], Settings: redis}.Write(folders[name]))
	}
	folders["all components"] = t.TempDir()
	must(t, deploy.Overlay{Components: all, Settings: redis}.Write(folders["all components"]))
	return folders
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pick returns the rendered objects of a kind as their Go type, by name.
func pick[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) map[string]T {
	t.Helper()
	found := map[string]T{}
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		var typed T
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed))
		found[object.GetName()] = typed
	}
	return found
}

// Whatever is put together from what is shipped, the processes understand their
// settings, files are where the settings say, and probes, ports and grace periods fit.
func TestWhatIsShippedFitsWhatTheProcessesRead(t *testing.T) {
	kubectl, err := deploy.FindKubectl(t.Context(), "")
	must(t, err)
	for name, folder := range shipped(t) {
		t.Run(name, func(t *testing.T) {
			objects, err := kubectl.Render(t.Context(), folder)
			must(t, err)
			deployments := pick[appsv1.Deployment](t, objects, "Deployment")
			maps := pick[corev1.ConfigMap](t, objects, "ConfigMap")
			for _, command := range []string{"starter", "worker"} {
				fits(t, deployments[command], maps)
			}
			if replicas := *deployments["starter"].Spec.Replicas; name == "base" && replicas != 2 {
				t.Errorf("%d starters, want 2", replicas)
			}
		})
	}
}

// fits holds one Deployment to its settings, as its process reads them.
func fits(t *testing.T, deployment appsv1.Deployment, configMaps map[string]corev1.ConfigMap) {
	t.Helper()
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	for name, value := range settingsOf(t, deployment, configMaps) {
		if strings.HasSuffix(name, "_FILE") && value != "" {
			if !mounted(container, value) {
				t.Errorf("%s=%s: no Secret is mounted there in %s", name, value, deployment.Name)
			}
			value = filepath.Join(t.TempDir(), "secret")
			must(t, os.WriteFile(value, []byte("x"), 0o600))
		}
		t.Setenv(name, value)
	}
	var service config.Service
	var ends time.Duration
	switch command := container.Args[0]; command {
	case "starter":
		var set config.Starter
		must(t, config.Load(&set))
		service, ends = set.Service, set.Drain
	case "worker":
		var set config.Worker
		must(t, config.Load(&set))
		service, ends = set.Service, set.StopTimeout
		if ends != 25*time.Second {
			t.Errorf("a worker stops within %s, want the 25 s that are shipped", ends)
		}
	default:
		t.Fatalf("%s runs %q", deployment.Name, command)
	}
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < ends+afterwards {
		t.Errorf("%s has %s from SIGTERM to SIGKILL, and may need %s", deployment.Name, grace, ends+afterwards)
	}
	port := container.Ports[0]
	if want := fmt.Sprintf(":%d", port.ContainerPort); service.HTTP.Address != want {
		t.Errorf("%s listens on %s and shows port %s", deployment.Name, service.HTTP.Address, want)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != port.Name {
			t.Errorf("%s is probed at %s on port %s, want %s on %s", deployment.Name, probe.HTTPGet.Path, probe.HTTPGet.Port.StrVal, path, port.Name)
		}
		if probe.TimeoutSeconds < 2 {
			t.Errorf("%s is given %d s for %s, which may take 900 ms", deployment.Name, probe.TimeoutSeconds, path)
		}
	}
	if got, want := deployment.Spec.Template.Annotations["prometheus.io/port"], fmt.Sprint(port.ContainerPort); got != want {
		t.Errorf("%s is scraped on port %s, want %s", deployment.Name, got, want)
	}
}

// settingsOf are the variables that a Deployment's process gets. Of ConfigMaps that
// both have one the later wins, as for the kubelet.
func settingsOf(t *testing.T, deployment appsv1.Deployment, configMaps map[string]corev1.ConfigMap) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for _, source := range deployment.Spec.Template.Spec.Containers[0].EnvFrom {
		data := configMaps[source.ConfigMapRef.Name].Data
		if len(data) == 0 {
			t.Fatalf("%s reads ConfigMap %q, which has nothing or isn't there", deployment.Name, source.ConfigMapRef.Name)
		}
		maps.Copy(settings, data)
	}
	return settings
}

// rightsOnly are the components that only grant something.
var rightsOnly = map[string]bool{"components/node-isolation": true}

// What a site sets wins over what a component sets, an empty value too; all but the
// mode, which comes with its right.
func TestWhatASiteSetsWinsOverAComponent(t *testing.T) {
	kubectl, err := deploy.FindKubectl(t.Context(), "")
	must(t, err)
	read := func(overlay deploy.Overlay, command string) map[string]string {
		folder := t.TempDir()
		must(t, overlay.Write(folder))
		objects, err := kubectl.Render(t.Context(), folder)
		must(t, err)
		return settingsOf(t, pick[appsv1.Deployment](t, objects, "Deployment")[command], pick[corev1.ConfigMap](t, objects, "ConfigMap"))
	}
	components, err := deploy.Folders("components")
	must(t, err)
	for _, command := range []string{"starter", "worker"} {
		base := read(deploy.Overlay{}, command)
		for _, component := range components {
			overlay := deploy.Overlay{Components: []string{strings.TrimPrefix(component, "components/")}}
			overlay.Settings = map[string]string{}
			for name, value := range read(overlay, command) {
				if base[name] != value {
					overlay.Settings[name] = ""
				}
			}
			if none := len(overlay.Settings) == 0; none != rightsOnly[component] {
				t.Errorf("%s sets nothing for the %s is %t", component, command, none)
			}
			all := slices.Sorted(maps.Keys(overlay.Settings))
			for _, value := range []string{"the site's", ""} {
				for _, name := range all {
					overlay.Settings[name] = value
				}
				got := read(overlay, command)
				for _, name := range all {
					want := value
					if name == "SICKBAY_MODE" {
						want = "enforce"
					}
					if found, set := got[name]; found != want || !set {
						t.Errorf("with %s the site sets %s=%q for the %s, and it gets %q, want %q", component, name, value, command, found, want)
					}
				}
			}
		}
	}
}

// mounted tells whether a path is a file in a volume of the container.
func mounted(container corev1.Container, path string) bool {
	for _, mount := range container.VolumeMounts {
		if filepath.Dir(path) == mount.MountPath && mount.SubPath == "" && mount.ReadOnly {
			return true
		}
	}
	return false
}

// The one switch comes with the right, and neither without the other.
func TestTheRightToMarkComesWithTheMode(t *testing.T) {
	kubectl, err := deploy.FindKubectl(t.Context(), "")
	must(t, err)
	for name, folder := range shipped(t) {
		objects, err := kubectl.Render(t.Context(), folder)
		must(t, err)
		mode := ""
		for _, settings := range pick[corev1.ConfigMap](t, objects, "ConfigMap") {
			mode += settings.Data["SICKBAY_MODE"]
		}
		want := "observe"
		if name == "components/enforce" || name == "all components" {
			want = "enforce"
		}
		_, may := pick[corev1.ObjectReference](t, objects, "ClusterRole")["sickbay-worker-marks"]
		if mode != want || may != (want == "enforce") {
			t.Errorf("%s: mode %q, may mark %t: want %s", name, mode, may, want)
		}
	}
}

// The evaluation's Temporal knows the search attributes that Sickbay writes.
func TestTheEvaluationsTemporalHasTheSearchAttributes(t *testing.T) {
	kubectl, err := deploy.FindKubectl(t.Context(), "")
	must(t, err)
	folder, err := deploy.Folder("overlays/evaluation")
	must(t, err)
	objects, err := kubectl.Render(t.Context(), folder)
	must(t, err)
	args := pick[appsv1.Deployment](t, objects, "Deployment")["temporal"].Spec.Template.Spec.Containers[0].Args
	got := map[string]string{}
	for _, arg := range args {
		if attribute, ok := strings.CutPrefix(arg, "--search-attribute="); ok {
			name, kind, _ := strings.Cut(attribute, "=")
			got[name] = kind
		}
	}
	if want := product.SearchAttributes(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the evaluation's Temporal gets the search attributes %v, want %v", got, want)
	}
}

package watchpods

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

var set = Set{
	Name: "watch-gpu-example-com", Namespace: "sickbay-watch", Image: "registry.example.com/sickbay:1",
	Driver: "gpu.example.com", Class: "gpus",
}

// documents are those of a YAML file, by kind.
func documents(t *testing.T, content io.Reader) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(content))
	for {
		buffer := make([]byte, 1<<16)
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(buffer[:n], &kind); err != nil {
			t.Fatal(err)
		}
		found[kind.Kind] = buffer[:n]
	}
}

// strictly reads a document, and refuses fields that its type doesn't have.
func strictly[T any](t *testing.T, document []byte) T {
	t.Helper()
	var read T
	if err := yaml.UnmarshalStrict(document, &read); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	return read
}

func written(t *testing.T, s Set) map[string][]byte {
	t.Helper()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.Write(&out); err != nil {
		t.Fatal(err)
	}
	return documents(t, &out)
}

// O11 in part. A watch Pod shares devices by admin access, stays where they are kept out,
// pushes nobody out, and has no more rights than it needs.
func TestAWatchPodSharesAllDevicesAndCostsNobody(t *testing.T) {
	all := written(t, set)
	request := strictly[resourcev1.ResourceClaimTemplate](t, all["ResourceClaimTemplate"]).Spec.Spec.Devices.Requests[0].Exactly
	if request.AdminAccess == nil || !*request.AdminAccess || request.AllocationMode != resourcev1.DeviceAllocationModeAll || request.DeviceClassName != "gpus" ||
		request.Selectors[0].CEL.Expression != `device.driver == "gpu.example.com"` {
		t.Errorf("the claim asks for %+v, want all of the driver's devices by admin access", request)
	}
	want := []resourcev1.DeviceToleration{
		{Operator: resourcev1.DeviceTolerationOpExists},
		{Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute},
	}
	if !reflect.DeepEqual(request.Tolerations, want) {
		t.Errorf("it tolerates %+v, want %+v", request.Tolerations, want)
	}
	daemons := strictly[appsv1.DaemonSet](t, all["DaemonSet"])
	pod := daemons.Spec.Template.Spec
	if daemons.Spec.UpdateStrategy.RollingUpdate.MaxSurge.IntValue() != 1 || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken ||
		pod.PriorityClassName != "sickbay-watch" || pod.NodeSelector != nil {
		t.Errorf("DaemonSet %+v", daemons.Spec)
	}
	class := strictly[schedulingv1.PriorityClass](t, all["PriorityClass"])
	if class.Value >= 0 || class.PreemptionPolicy == nil || *class.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("PriorityClass %+v, want one below everybody that preempts nobody", class)
	}
	if container := pod.Containers[0]; container.Image != set.Image || container.Args[0] != "watch" || !reflect.DeepEqual(container.Resources.Claims, []corev1.ResourceClaim{{Name: "devices"}}) {
		t.Errorf("container %+v", container)
	}
}

// With a request for each device the container names each, and each has an entry of its
// own in the Pod's status.
func TestARequestPerDeviceNamesEach(t *testing.T) {
	each := set
	each.PerDevice, each.Nodes = 3, map[string]string{"example.com/gpus": "3"}
	all := written(t, each)
	requests := strictly[resourcev1.ResourceClaimTemplate](t, all["ResourceClaimTemplate"]).Spec.Spec.Devices.Requests
	daemons := strictly[appsv1.DaemonSet](t, all["DaemonSet"])
	named := daemons.Spec.Template.Spec.Containers[0].Resources.Claims
	if len(requests) != 3 || len(named) != 3 {
		t.Fatalf("%d requests, %d named by the container, want 3 each", len(requests), len(named))
	}
	for i, request := range requests {
		if request.Exactly.AllocationMode != resourcev1.DeviceAllocationModeExactCount || request.Exactly.Count != 1 || named[i].Request != request.Name {
			t.Errorf("request %+v, named as %+v", request, named[i])
		}
	}
	if !reflect.DeepEqual(daemons.Spec.Template.Spec.NodeSelector, each.Nodes) {
		t.Errorf("on nodes %v, want %v", daemons.Spec.Template.Spec.NodeSelector, each.Nodes)
	}
}

// Who applies both, the component and what the command writes, has the same twice.
func TestTheCommandAndTheComponentAgree(t *testing.T) {
	all := written(t, set)
	for kind, name := range map[string]string{"Namespace": "namespace.yaml", "PriorityClass": "priority.yaml"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "deploy", "components", "watch", name))
		if err != nil {
			t.Fatal(err)
		}
		var shipped, wrote map[string]any
		if err := yaml.Unmarshal(content, &shipped); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(all[kind], &wrote); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(shipped, wrote) {
			t.Errorf("%s %v, and deploy/components/watch has %v", kind, wrote, shipped)
		}
	}
}

func TestWhatNoAPIServerWouldTakeIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Set){
		`--driver "GPU"`:           func(s *Set) { s.Driver = "GPU" },
		`--class "a b"`:            func(s *Set) { s.Class = "a b" },
		`--name "a.b"`:             func(s *Set) { s.Name = "a.b" },
		`--namespace ""`:           func(s *Set) { s.Namespace = "" },
		"--request-per-device 33":  func(s *Set) { s.PerDevice = 33 },
		"--request-per-device -1":  func(s *Set) { s.PerDevice = -1 },
		`--image ""`:               func(s *Set) { s.Image = "" },
		"--node-selector a=b c":    func(s *Set) { s.Nodes = map[string]string{"a": "b c"} },
		`--node-selector x/y/z=ok`: func(s *Set) { s.Nodes = map[string]string{"x/y/z": "ok"} },
	} {
		changed := set
		change(&changed)
		if err := changed.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s…", err, want)
		}
	}
}

// Names of different drivers differ, and fit into what is made of them.
func TestEachDriverHasAName(t *testing.T) {
	long := strings.Repeat("accelerators.", 4) + "example.com"
	for driver, want := range map[string]string{"gpu.example.com": "watch-gpu-example-com", long: DefaultName(long)} {
		name := DefaultName(driver)
		if name != want || len(name) > 52 || name == DefaultName("x"+driver) {
			t.Errorf("%s is %s, %d characters", driver, name, len(name))
		}
	}
}

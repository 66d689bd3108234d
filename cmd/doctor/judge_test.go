package doctor

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// wants compares the state, and that what isn't ok says all that it should.
func wants(t *testing.T, what string, f Finding, state State, found string) {
	t.Helper()
	if f.State != state || !strings.Contains(f.Found, found) {
		t.Errorf("%s: %s %q, want %s with %q", what, f.State, f.Found, state, found)
	}
	if f.Needed == "" || f.Check == "" {
		t.Errorf("%s: check %q, needed %q: want both", what, f.Check, f.Needed)
	}
	if (f.State != OK) != (f.Without != "") || (f.State != OK) != (f.Remedy != "") {
		t.Errorf("%s: %s without %q, remedy %q: want both where it isn't ok, and neither where it is", what, f.State, f.Without, f.Remedy)
	}
}

func TestVersionsOfKubernetes(t *testing.T) {
	for version, state := range map[string]State{
		"v1.35.9": Missing, "v1.36.0": OK, "v1.36.3-eks-1": OK, "v1.37.2+k3s1": OK, "v1.38.0-alpha.1": Degraded, "v2.0.0": Unknown, "devel": Unknown,
	} {
		wants(t, version, judgeVersion("kubernetes/version", "1.36 to 1.37", version), state, version)
	}
}

func TestGatesThatAreOffAreNamedOneByOne(t *testing.T) {
	on := `# HELP kubernetes_feature_enabled [BETA] This metric records the data about the stage and enablement of a k8s feature.
kubernetes_feature_enabled{name="DRADeviceTaintRules",stage=""} 1
kubernetes_feature_enabled{name="DRADeviceTaints",stage=""} 1
kubernetes_feature_enabled{name="DynamicResourceAllocation",stage=""} 1
kubernetes_feature_enabled{name="ResourceHealthStatus",stage="BETA"} 1
kubernetes_feature_enabled{name="ResourceHealthStatusMessage",stage="BETA"} 1
`
	all := judgeGates("kubernetes/gates", readGates([]byte(on)))
	if len(all) != 1 {
		t.Fatalf("all are on, and it finds %+v", all)
	}
	wants(t, "all on", all[0], OK, "ResourceHealthStatusMessage")

	off := strings.Replace(on, `ResourceHealthStatus",stage="BETA"} 1`, `ResourceHealthStatus",stage="BETA"} 0`, 1)
	off = strings.Replace(off, `kubernetes_feature_enabled{name="DRADeviceTaintRules",stage=""} 1`, "", 1)
	some := judgeGates("kubernetes/gates", readGates([]byte(off)))
	if len(some) != 3 {
		t.Fatalf("two of five are off, and it finds %+v", some)
	}
	wants(t, "one off", some[1], Missing, "off")
	wants(t, "one that the server doesn't know", some[2], Degraded, "doesn't know it")
	if !strings.Contains(some[2].Remedy, "runtime-config") {
		t.Errorf("the remedy %q doesn't say how 1.36 serves the API", some[2].Remedy)
	}
}

func TestRightsThatAreLackingAreToldByWhatTheyAreFor(t *testing.T) {
	all := kube.WorkerRights(true)
	var events, delete, pods []kube.Right
	for _, right := range all {
		switch {
		case right.Resource == "events":
			events = append(events, right)
		case right.Resource == "pods":
			pods = append(pods, right)
		case right.Verb == "delete":
			delete = append(delete, right)
		}
	}
	who := kube.Account{Namespace: "sickbay", Name: "worker"}
	wants(t, "none lacking", judgeRights("r", "worker", "enforce", who, len(all), nil), OK, "all 14, as SICKBAY_MODE=enforce needs them")
	wants(t, "one that nothing depends on", judgeRights("r", "worker", "enforce", who, len(all), events), Degraded, "sickbay/worker may not create or patch events")
	wants(t, "one that something depends on", judgeRights("r", "worker", "enforce", who, len(all), append(events, delete...)), Missing, "delete devicetaintrules.resource.k8s.io")
	wants(t, "asked for oneself", judgeRights("r", "worker", "enforce", kube.Account{}, len(all), pods), Missing, "it may not get or list pods")
	wants(t, "all lacking", judgeRights("r", "worker", "enforce", who, len(all), all), Missing, "none of the 14")
	if f := judgeRights("r", "worker", "enforce", who, len(all), delete); !strings.Contains(f.Without, "stays marked") {
		t.Errorf("without %q: want what a missing right to delete comes to", f.Without)
	}
}

func TestDriversThatNeverReportedHealthAreTold(t *testing.T) {
	held := []listing.Holder{{Namespace: "default", Name: "train"}}
	dra := func(driver, node string, health device.Health, holders []listing.Holder) listing.Device {
		return listing.Device{Key: device.Key{Driver: driver, Pool: node, Device: "gpu-0"}, Node: node, Health: health, Holders: holders}
	}
	findings := judgeHealth("kubernetes/health", listing.Listing{Devices: []listing.Device{
		dra("good.example.com", "a", device.Healthy, held), dra("good.example.com", "b", device.Unknown, held),
		dra("mute.example.com", "a", device.Unknown, held), dra("mute.example.com", "b", device.Unknown, held),
		dra("old.example.com", "c", "", held), dra("idle.example.com", "a", "", nil),
	}})
	if len(findings) != 3 {
		t.Fatalf("three drivers have devices in use, and it finds %+v", findings)
	}
	wants(t, "one known", findings[0], OK, "1 of 2 in use")
	wants(t, "all Unknown", findings[1], Degraded, "all 2 in use are Unknown")
	wants(t, "no entry", findings[2], Degraded, "on nodes c")
	wants(t, "nothing in use", judgeHealth("kubernetes/health", listing.Listing{})[0], OK, "nothing to judge by")
}

func TestResourcesOfDevicePluginsAreAdvisedOn(t *testing.T) {
	node := func(name string, capacity corev1.ResourceList) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: capacity}}
	}
	findings := judgePlugins("kubernetes/device-plugins", []*corev1.Node{
		node("a", corev1.ResourceList{"cpu": resource.MustParse("64"), "hugepages-2Mi": resource.MustParse("1Gi"), "example.com/gpu": resource.MustParse("8")}),
		node("b", corev1.ResourceList{"example.com/gpu": resource.MustParse("4")}),
	})
	if len(findings) != 1 {
		t.Fatalf("there is one such resource, and it finds %+v", findings)
	}
	wants(t, "one resource", findings[0], Degraded, "12, on nodes: 2")
	wants(t, "none", judgePlugins("kubernetes/device-plugins", nil)[0], OK, "none")
}

func TestTolerationsThatPassAMark(t *testing.T) {
	exists, equal := resourcev1.DeviceTolerationOpExists, resourcev1.DeviceTolerationOpEqual
	for what, c := range map[string]struct {
		toleration resourcev1.DeviceToleration
		passes     bool
	}{
		"everything":                      {resourcev1.DeviceToleration{Operator: exists}, true},
		"everything that keeps Pods off":  {resourcev1.DeviceToleration{Operator: exists, Effect: resourcev1.DeviceTaintEffectNoSchedule}, true},
		"only evictions":                  {resourcev1.DeviceToleration{Operator: exists, Effect: resourcev1.DeviceTaintEffectNoExecute}, false},
		"our key, whatever the epoch":     {resourcev1.DeviceToleration{Operator: exists, Key: kube.TaintKey}, true},
		"our key of one epoch, as probes": {resourcev1.DeviceToleration{Operator: equal, Key: kube.TaintKey, Value: "1"}, false},
		"somebody else's key":             {resourcev1.DeviceToleration{Operator: exists, Key: "gpu.example.com/xid"}, false},
	} {
		all := []resourcev1.DeviceToleration{c.toleration}
		for form, request := range map[string]resourcev1.DeviceRequest{
			"exactly":        {Exactly: &resourcev1.ExactDeviceRequest{Tolerations: all}},
			"firstAvailable": {FirstAvailable: []resourcev1.DeviceSubRequest{{}, {Tolerations: all}}},
		} {
			if got := passes([]resourcev1.DeviceRequest{{}, request}); got != c.passes {
				t.Errorf("a claim that tolerates %s (%s) passes: %t, want %t", what, form, got, c.passes)
			}
		}
	}
	wants(t, "some", judgeTolerations("t", []string{"claim a/b"}), Degraded, "claim a/b")
	wants(t, "none", judgeTolerations("t", nil), OK, "none")
}

func TestWhatRedisSaysOfItself(t *testing.T) {
	good := map[string]string{"redis_version": "7.0.15", "role": "master", "aof_enabled": "1", "maxmemory": "0", "maxmemory_policy": "noeviction"}
	with := func(key, value string) map[string]string {
		changed := map[string]string{}
		for k, v := range good {
			changed[k] = v
		}
		changed[key] = value
		return changed
	}
	server := func(info map[string]string) Finding {
		return judgeServer(Finding{Check: "redis/server", State: OK, Needed: "7.0"}, info)
	}
	wants(t, "a good one", server(good), OK, "7.0.15, master")
	wants(t, "an old one", server(with("redis_version", "6.2.1")), Degraded, "6.2.1")
	wants(t, "a replica", server(with("role", "slave")), Degraded, "slave")
	for i, state := range []State{OK, OK} {
		wants(t, "a good one", judgeKeeping(good)[i], state, "")
	}
	wants(t, "nothing kept", judgeKeeping(with("aof_enabled", "0"))[0], Degraded, "no append-only file")
	wants(t, "eviction without a limit", judgeKeeping(with("maxmemory_policy", "allkeys-lru"))[1], OK, "no maxmemory")
	limited := with("maxmemory", "1000000")
	limited["maxmemory_policy"] = "allkeys-lru"
	wants(t, "eviction at a limit", judgeKeeping(limited)[1], Degraded, "allkeys-lru")
	limited["maxmemory_policy"], limited["used_memory"] = "noeviction", "950000"
	wants(t, "nearly full", judgeKeeping(limited)[1], Degraded, "950000 of 1000000")
}

func TestWhoPollsTheTaskQueue(t *testing.T) {
	wants(t, "nobody", judgeWorkers("temporal/workers", "sickbay", nil), Missing, "nobody polls")
	wants(t, "one", judgeWorkers("temporal/workers", "sickbay", []string{"a"}), Degraded, "1: a")
	wants(t, "two", judgeWorkers("temporal/workers", "sickbay", []string{"a", "b"}), OK, "2: a, b")
}

// O11: where devices that nobody holds aren't seen, that is said, and not called a lack.
func TestDevicesThatNobodySeesAreCounted(t *testing.T) {
	at := func(name string, health device.Health, holders ...listing.Holder) listing.Device {
		key := device.Key{Driver: "gpu.example.com", Pool: "node-0", Device: name}
		return listing.Device{Name: key.String(), Path: device.PathDRA, Key: key, Node: "node-0", Listed: true, Health: health, Holders: holders}
	}
	tenant := listing.Holder{Namespace: "default", Name: "train-0"}
	plugins := listing.Device{Path: device.PathPlugin, Key: device.Key{Node: "node-0", Resource: "example.com/gpu", ID: "0"}, Listed: true}
	free, watched, held := at("gpu-0", ""), at("gpu-1", device.Healthy), at("gpu-2", "", tenant)
	for found, devices := range map[string][]listing.Device{
		"of 3 DRA devices 1 are unseen: nobody holds them, so no fault of theirs shows; on nodes node-0": {free, watched, held, plugins},
		"of 2 DRA devices none is unseen": {watched, held, plugins},
		"of 0 DRA devices none is unseen": {plugins},
	} {
		wants(t, found, judgeUnseen("kubernetes/unseen", listing.Listing{Devices: devices}), OK, found)
	}
}

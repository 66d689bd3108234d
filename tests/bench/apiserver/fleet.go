package apiserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sickbay-dev/sickbay/tests/simnode"
)

// namespace is where the fleet's Pods and claims are.
const namespace = "default"

// Fleet says what is served.
type Fleet struct {
	// Nodes have DevicesPerNode devices each, all of them held by one Pod and Healthy.
	Nodes, DevicesPerNode int
	// NodeEvery is how often each node's status is written, PodEvery how often each
	// Pod's is, without saying anything new. Default 5 min: a kubelet's
	// nodeStatusReportFrequency, and for Pods more than kubelets write of their own
	// accord.
	NodeEvery, PodEvery time.Duration
	// Version is the Kubernetes version, "v1.37.2".
	Version string
}

func (f Fleet) withDefaults() Fleet {
	if f.NodeEvery == 0 {
		f.NodeEvery = 5 * time.Minute
	}
	if f.PodEvery == 0 {
		f.PodEvery = 5 * time.Minute
	}
	if f.Version == "" {
		f.Version = "v1.37.2"
	}
	return f
}

// Devices is how many there are.
func (f Fleet) Devices() int { return f.Nodes * f.DevicesPerNode }

// Rate is how many writes a second there are, of nodes and Pods together.
func (f Fleet) Rate() float64 {
	return float64(f.Nodes)/f.NodeEvery.Seconds() + float64(f.Nodes)/f.PodEvery.Seconds()
}

// NodeName and PodName name the nth node and the Pod on it.
func NodeName(nth int) string { return fmt.Sprintf("node-%d", nth) }

// PodName is the name of the nth node's Pod, and of its claim.
func PodName(nth int) string { return fmt.Sprintf("job-%d", nth) }

var (
	nodes          = schema.GroupResource{Resource: "nodes"}
	pods           = schema.GroupResource{Resource: "pods"}
	configMaps     = schema.GroupResource{Resource: "configmaps"}
	resourceClaims = schema.GroupResource{Group: resourceapi.GroupName, Resource: "resourceclaims"}
	resourceSlices = schema.GroupResource{Group: resourceapi.GroupName, Resource: "resourceslices"}
	deviceClasses  = schema.GroupResource{Group: resourceapi.GroupName, Resource: "deviceclasses"}
	taintRules     = schema.GroupResource{Group: resourceapi.GroupName, Resource: "devicetaintrules"}
)

func resources() []resource {
	of := func(gr schema.GroupResource, kind string, namespaced bool, empty func() object, selects func(object) fields.Set) resource {
		return resource{GroupVersionResource: gr.WithVersion("v1"), kind: kind, namespaced: namespaced, empty: empty, selects: selects}
	}
	return []resource{
		// There is none; whoever asks for the policy is told so.
		of(configMaps, "ConfigMap", true, func() object { return &corev1.ConfigMap{} }, nil),
		of(nodes, "Node", false, func() object { return &corev1.Node{} }, nil),
		of(pods, "Pod", true, func() object { return &corev1.Pod{} }, func(o object) fields.Set {
			return fields.Set{"spec.nodeName": o.(*corev1.Pod).Spec.NodeName}
		}),
		of(resourceClaims, "ResourceClaim", true, func() object { return &resourceapi.ResourceClaim{} }, nil),
		of(resourceSlices, "ResourceSlice", false, func() object { return &resourceapi.ResourceSlice{} }, func(o object) fields.Set {
			slice := o.(*resourceapi.ResourceSlice)
			selected := fields.Set{resourceapi.ResourceSliceSelectorDriver: slice.Spec.Driver}
			if slice.Spec.NodeName != nil {
				selected[resourceapi.ResourceSliceSelectorNodeName] = *slice.Spec.NodeName
			}
			return selected
		}),
		of(deviceClasses, "DeviceClass", false, func() object { return &resourceapi.DeviceClass{} }, nil),
		of(taintRules, "DeviceTaintRule", false, func() object { return &resourceapi.DeviceTaintRule{} }, nil),
		of(leases, "Lease", true, func() object { return &coordinationv1.Lease{} }, nil),
	}
}

// fill makes the fleet's objects.
func (s *Server) fill() error {
	class := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: simnode.DefaultDriver},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", simnode.DefaultDriver)},
		}}},
	}
	admit(class)
	if err := s.store.put(deviceClasses, class); err != nil {
		return err
	}
	for nth := range s.fleet.Nodes {
		all := simnode.Render(simnode.MakeNode(NodeName(nth), s.fleet.DevicesPerNode), nth, s.fleet.Version, namespace, PodName(nth))
		admitNode(all.Node)
		admitPod(all.Pod)
		admit(all.Claim)
		manage(all.Claim, "kube-scheduler", "")
		if err := errors.Join(s.store.put(nodes, all.Node), s.store.put(resourceClaims, all.Claim), s.store.put(pods, all.Pod)); err != nil {
			return err
		}
		for i, slice := range all.Slices {
			slice.Name = fmt.Sprintf("%s%05x", slice.GenerateName, nth*len(all.Slices)+i)
			admit(slice)
			slice.Generation = 1
			manage(slice, "driver", "")
			if err := s.store.put(resourceSlices, slice); err != nil {
				return err
			}
		}
	}
	return nil
}

// trickle writes what kubelets write of themselves all the time, evenly spread, until
// the server ends.
func (s *Server) trickle() {
	if s.fleet.Nodes == 0 {
		return
	}
	node := time.NewTicker(s.fleet.NodeEvery / time.Duration(s.fleet.Nodes))
	defer node.Stop()
	pod := time.NewTicker(s.fleet.PodEvery / time.Duration(s.fleet.Nodes))
	defer pod.Stop()
	order := rand.New(rand.NewPCG(1, 2))
	var nextNode, nextPod int
	for {
		// An edit fails only for an object that isn't there, and all of these are.
		select {
		case <-s.ended:
			return
		case now := <-node.C:
			_ = s.store.edit(nodes, keyOf("", NodeName(nextNode)), func(o object) {
				conditions := o.(*corev1.Node).Status.Conditions
				for i := range conditions {
					conditions[i].LastHeartbeatTime = metav1.NewTime(now)
				}
			})
			nextNode = (nextNode + 1) % s.fleet.Nodes
		case <-pod.C:
			_ = s.store.edit(pods, keyOf(namespace, PodName(nextPod)), func(o object) {
				simnode.Rewrite(&o.(*corev1.Pod).Status, order)
			})
			nextPod = (nextPod + 1) % s.fleet.Nodes
		}
	}
}

// Break lets the nth node's Pod report a fault of a device, and returns when that
// was served.
func (s *Server) Break(nth int, device, message string) (time.Time, error) {
	id := simnode.DefaultDriver + "/" + NodeName(nth) + "/" + device
	found := false
	at := time.Now()
	err := s.store.edit(pods, keyOf(namespace, PodName(nth)), func(o object) {
		for _, container := range o.(*corev1.Pod).Status.ContainerStatuses {
			for _, entry := range container.AllocatedResourcesStatus {
				for i := range entry.Resources {
					if string(entry.Resources[i].ResourceID) == id {
						entry.Resources[i].Health, entry.Resources[i].Message = corev1.ResourceHealthStatusUnhealthy, &message
						found = true
					}
				}
			}
		}
	})
	if err == nil && !found {
		err = fmt.Errorf("break %s: Pod %s doesn't have it", id, PodName(nth))
	}
	return at, err
}

// SayAll lets every Pod report one health of all its devices, and returns of how many.
func (s *Server) SayAll(health corev1.ResourceHealthStatus) (int, error) {
	devices := 0
	for nth := range s.fleet.Nodes {
		err := s.store.edit(pods, keyOf(namespace, PodName(nth)), func(o object) {
			for _, container := range o.(*corev1.Pod).Status.ContainerStatuses {
				for _, entry := range container.AllocatedResourcesStatus {
					for i := range entry.Resources {
						entry.Resources[i].Health, entry.Resources[i].Message = health, nil
						devices++
					}
				}
			}
		})
		if err != nil {
			return devices, err
		}
	}
	return devices, nil
}

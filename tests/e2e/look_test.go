package e2e

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// A look at one node doesn't take a Pod that the case knows from another node for
// one that has ended; one that is gone, and one that has its name by now, are. Proves
// O5 in part: all holders of a device count, wherever they are.
func TestALookTellsAPodElsewhereFromOneThatEnded(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37"}, 2, 1)
	place := func(name, node string) device.PodRef {
		t.Helper()
		pod, err := c.nodes.Place(t.Context(), "default", name, node, "gpu-0")
		if err != nil {
			t.Fatal(err)
		}
		return device.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
	}
	here, there := place("here", "node-0"), place("there", "node-1")
	gone := device.PodRef{Namespace: "default", Name: "gone", UID: "a-uid"}
	renamed := device.PodRef{Namespace: "default", Name: "there", UID: "another-uid"}
	key, err := device.NewDRA(simnode.DefaultDriver, "node-0", "gpu-0")
	if err != nil {
		t.Fatal(err)
	}
	c.set(key, corev1.ResourceHealthStatusHealthy, "")
	reader := kube.NewLiveReader(c.kube, c.marks, reason.Builtin())
	looked, err := reader.Look(t.Context(), quarantine.Look{
		Device: key, Node: "node-0", Asked: time.Now(), Known: []device.PodRef{here, there, gone, renamed},
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(looked.Ended)
	if want := []string{"a-uid", "another-uid"}; !slices.Equal(looked.Ended, want) {
		t.Errorf("ended %v, want %v", looked.Ended, want)
	}
	if len(looked.Holders) != 1 || looked.Holders[0].Pod.UID != here.UID {
		t.Errorf("holders %+v, want %s", looked.Holders, here)
	}
	if len(looked.Readings) == 0 || looked.Readings[0].Pod.UID != here.UID {
		t.Errorf("readings %+v, want the word of %s", looked.Readings, here)
	}
}

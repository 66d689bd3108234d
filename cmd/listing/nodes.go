package listing

// This file judges what Pods say by the node that they are on. A command that reads
// once can't see whether a node's Lease advances: it takes the node controller's
// word for it, which stands in the Node's Ready condition.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// lostWithoutNodes is what an answer lacks without the Node objects.
const lostWithoutNodes = "a Healthy on a node that is out, or without its plugin, shows as it was reported"

// Node is what a Node object says.
type Node struct {
	Name string
	// Ready is its Ready condition; empty where it has none, as one whose kubelet
	// never came up. Since is when that last changed, by the clock of who wrote it.
	Ready corev1.ConditionStatus
	Since time.Time
	// Offers is what it offers of each extended resource.
	Offers map[string]device.Offer
	// Isolated is what Sickbay wrote on it to keep it out as a whole, or nil.
	Isolated *Isolated
}

// Isolated tells that Sickbay keeps a whole node out, since when and why.
type Isolated struct {
	Way   isolation.Way `json:"way"`
	Epoch int64         `json:"epoch"`
	Since time.Time     `json:"since,omitzero"`
	Why   string        `json:"why"`
}

func nodeView(node *corev1.Node) (Node, bool) {
	view := Node{Name: node.Name, Offers: kube.OffersOf(node)}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			view.Ready, view.Since = c.Status, c.LastTransitionTime.Time
		}
	}
	if mark, ours := kube.ReadNodeMark(node, 0); ours {
		view.Isolated = &Isolated{Way: mark.Found.Way, Epoch: mark.Found.Epoch, Since: mark.Found.Since, Why: mark.Found.Why}
	}
	return view, true
}

// Out says why nothing on a node can be believed; empty where it can. It is judged as
// starters and cases judge it, by Ready alone: the node controller sets that to Unknown
// when a node's Lease has stopped (k8s.io/kubernetes pkg/controller/nodelifecycle).
func (n Node) Out() device.Staleness {
	return device.JudgeNode(device.HeartbeatUnseen, device.Readiness(n.Ready)).Staleness()
}

// Outage is a node that is out.
type Outage struct {
	Node string           `json:"node"`
	Why  device.Staleness `json:"why"`
	// Devices is how many of the listing's devices are on it.
	Devices int `json:"devices"`
}

// Outages are the nodes of the listing's devices that are out, by name.
func (l Listing) Outages() []Outage {
	byNode := map[string]Outage{}
	for _, d := range l.Devices {
		if d.NodeOut != device.Fresh {
			byNode[d.Node] = Outage{Node: d.Node, Why: d.NodeOut, Devices: byNode[d.Node].Devices + 1}
		}
	}
	outages := make([]Outage, 0, len(byNode))
	for _, name := range slices.Sorted(maps.Keys(byNode)) {
		outages = append(outages, byNode[name])
	}
	return outages
}

// OutNodes says in one line which of a cluster's nodes are out; empty where none is, and
// where that can't be read.
func OutNodes(ctx context.Context, client kubernetes.Interface) string {
	nodes, err := each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Nodes().List(ctx, o)
	}, nodeView)
	if err != nil {
		return ""
	}
	var out []string
	for _, n := range nodes {
		if n.Out() != device.Fresh {
			out = append(out, n.Name)
		}
	}
	if len(out) == 0 {
		return ""
	}
	slices.Sort(out)
	const named = 3
	names := strings.Join(out[:min(len(out), named)], ", ")
	if len(out) > named {
		names += fmt.Sprintf(" and %d more", len(out)-named)
	}
	return fmt.Sprintf("how devices are on %d of %d nodes, which are out: %s", len(out), len(nodes), names)
}

// doubts says why a Healthy that a Pod on a node reports can't be believed, as far as
// what was read shows. What couldn't be read casts no doubt: that is said as a problem.
func (j *joiner) doubts(key device.Key, node string) device.Staleness {
	if j.nodes != nil {
		n, there := j.nodes[node]
		switch out := n.Out(); {
		case !there:
			return device.NodeNotReady // as the starter calls a node that it doesn't see
		case out != device.Fresh:
			return out
		case key.Path() == device.PathPlugin && !n.Offers[key.Resource].Vouched():
			return device.PluginAbsent
		}
	}
	if j.byPool != nil && key.Path() == device.PathDRA && !j.byPool[device.PoolKey{Driver: key.Driver, Pool: key.Pool}].Complete {
		return device.DriverAbsent
	}
	return device.Fresh
}

package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// leaseNamespace is where kubelets renew their Leases.
const leaseNamespace = "kube-node-lease"

// LiveReader reads everything that bears on one device from the API server, past
// every cache: what a case believes for the better comes from here.
type LiveReader struct {
	client    kubernetes.Interface
	marks     *MarkWriter
	catalogue *reason.Catalogue
	poker     *Poker
	ours      device.Ours
}

// NewLiveReader returns a reader that judges messages by the catalogue.
func NewLiveReader(client kubernetes.Interface, marks *MarkWriter, catalogue *reason.Catalogue) *LiveReader {
	return &LiveReader{client: client, marks: marks, catalogue: catalogue}
}

// Poking lets looks ask a device's watch Pods for a reading of now. A nil Poker asks
// nobody.
func (l *LiveReader) Poking(poker *Poker) *LiveReader {
	l.poker = poker
	return l
}

// Sparing says in which namespace Sickbay's own claims and Pods are: they say how a device
// is, and hold none.
func (l *LiveReader) Sparing(ours device.Ours) *LiveReader {
	l.ours = ours
	return l
}

// Look answers a case's look. Where there are watch Pods, it first has their kubelet
// read the health anew. It reads, in this order: the device's pool, the Pods on its
// node, their claims, the node and its Lease, and the mark. What has to be listed for the
// whole cluster is listed only where the short way found nothing.
func (l *LiveReader) Look(ctx context.Context, look quarantine.Look) (quarantine.Looked, error) {
	looked := quarantine.Looked{Asked: look.Asked, Node: look.Node}
	pool, published, err := l.pool(ctx, look.Device, look.Node)
	if err != nil {
		return looked, err
	}
	looked.Slices = published
	if looked.Node == "" {
		looked.Node = nodeOf(look.Device, pool)
	}
	poked := l.poker.Device(ctx, look.Device, looked.Node)
	looked.Poke = poked.Says
	pods, err := l.pods(ctx, looked.Node, look.Known)
	if err != nil {
		return looked, err
	}
	claims, err := l.claims(ctx, look.Device, pods)
	if err != nil {
		return looked, err
	}
	// The node is read after its Pods: of what is on the way to both, an entry is
	// there first.
	state, err := l.node(ctx, &looked)
	if err != nil {
		return looked, err
	}
	l.read(&looked, look, pool, claims, pods, state)
	for i := range looked.Readings {
		looked.Readings[i].Acknowledged = slices.Contains(poked.Acknowledged, looked.Readings[i].Pod.UID)
	}
	looked.Presence = presence(look, pool, looked.Node, state)
	mark, err := l.marks.Read(ctx, look.Device)
	if err != nil {
		return looked, err
	}
	if mark != nil {
		looked.Mark, looked.MarkIntact = &mark.Found, mark.Intact
	}
	return looked, nil
}

// pool reads the device's pool; nil on the device-plugin path. A pool's slices are
// looked for on the node where the device was seen, and among all of the driver's
// if that isn't the whole pool: one that isn't on a node, or one that is gone. With it
// comes a name for how a complete pool is published.
func (l *LiveReader) pool(ctx context.Context, key device.Key, node string) (*device.Pool, string, error) {
	if key.Path() != device.PathDRA {
		return nil, "", nil
	}
	if node != "" {
		pool, published, err := l.poolIn(ctx, key, fields.Set{resourcev1.ResourceSliceSelectorDriver: key.Driver, resourcev1.ResourceSliceSelectorNodeName: node})
		if err != nil || pool.Complete {
			return pool, published, err
		}
	}
	return l.poolIn(ctx, key, fields.Set{resourcev1.ResourceSliceSelectorDriver: key.Driver})
}

func (l *LiveReader) poolIn(ctx context.Context, key device.Key, selected fields.Set) (*device.Pool, string, error) {
	var slicesOfPool []device.Slice
	var uids []string
	err := l.each(ctx, selected.AsSelector().String(),
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return l.client.ResourceV1().ResourceSlices().List(ctx, options)
		},
		func(object runtime.Object) {
			if slice := object.(*resourcev1.ResourceSlice); slice.Spec.Pool.Name == key.Pool {
				slicesOfPool = append(slicesOfPool, SliceView(slice))
				uids = append(uids, string(slice.UID))
			}
		})
	if err != nil {
		return nil, "", fmt.Errorf("list the ResourceSlices of driver %s: %w", key.Driver, err)
	}
	pool := device.AssemblePool(device.PoolKey{Driver: key.Driver, Pool: key.Pool}, slicesOfPool)
	if !pool.Complete {
		return &pool, "", nil
	}
	slices.Sort(uids)
	sum := sha256.Sum256([]byte(strings.Join(uids, " ")))
	return &pool, hex.EncodeToString(sum[:8]), nil
}

// claims reads the claims of the Pods. If none of them has the device, all claims
// of the cluster are read, for one can be allocated before its Pod is anywhere, and
// claims can't be selected by what they hold.
func (l *LiveReader) claims(ctx context.Context, key device.Key, pods []device.Pod) (map[string]device.Claim, error) {
	if key.Path() != device.PathDRA {
		return nil, nil
	}
	claims := map[string]device.Claim{}
	for _, pod := range pods {
		if pod.Terminal {
			continue
		}
		for _, name := range pod.ClaimNames() {
			id := pod.Ref.Namespace + "/" + name
			if _, read := claims[id]; read {
				continue
			}
			claim, err := l.client.ResourceV1().ResourceClaims(pod.Ref.Namespace).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("get ResourceClaim %s: %w", id, err)
			}
			claims[id] = l.ours.Claim(ClaimView(claim))
		}
	}
	if len(holders(key, claims)) > 0 {
		return claims, nil
	}
	err := l.each(ctx, "",
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return l.client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, options)
		},
		func(object runtime.Object) {
			claim := l.ours.Claim(ClaimView(object.(*resourcev1.ResourceClaim)))
			if len(claim.Results) > 0 {
				claims[claim.Namespace+"/"+claim.Name] = claim
			}
		})
	if err != nil {
		return nil, fmt.Errorf("list ResourceClaims: %w", err)
	}
	return claims, nil
}

// pods reads the Pods on a node, and one by one those that the case knows and that
// aren't there: a device that is on no one node has holders on several.
func (l *LiveReader) pods(ctx context.Context, node string, known []device.PodRef) ([]device.Pod, error) {
	var pods []device.Pod
	if node != "" {
		err := l.each(ctx, fields.OneTermEqualSelector("spec.nodeName", node).String(),
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return l.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
			},
			func(object runtime.Object) { pods = append(pods, l.ours.Pod(PodView(object.(*corev1.Pod)))) })
		if err != nil {
			return nil, fmt.Errorf("list the Pods on node %s: %w", node, err)
		}
	}
	for _, ref := range known {
		if slices.ContainsFunc(pods, func(p device.Pod) bool { return p.Ref.UID == ref.UID }) {
			continue
		}
		pod, err := l.client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get Pod %s: %w", ref, err)
		}
		if string(pod.UID) == ref.UID { // and not another one that has its name by now
			pods = append(pods, l.ours.Pod(PodView(pod)))
		}
	}
	return pods, nil
}

// each lists in pages, past the watch cache, and calls visit for each object.
func (l *LiveReader) each(ctx context.Context, selector string, list pager.ListPageFunc, visit func(runtime.Object)) error {
	p := pager.New(list)
	return p.EachListItem(ctx, metav1.ListOptions{FieldSelector: selector}, func(object runtime.Object) error {
		visit(object)
		return nil
	})
}

// read fills in holders, readings and ended Pods.
func (l *LiveReader) read(looked *quarantine.Looked, look quarantine.Look, pool *device.Pool, claims map[string]device.Claim, pods []device.Pod, node nodeState) {
	lookup := func(namespace, name string) (device.Claim, bool) {
		claim, ok := claims[namespace+"/"+name]
		return claim, ok
	}
	looked.Holders = holders(look.Device, claims)
	live := map[string]bool{}
	said := map[string][]device.DeviceReport{}
	listed := []device.Key{look.Device}
	for _, pod := range pods {
		if pod.Terminal {
			continue
		}
		live[pod.Ref.UID] = true
		observations, _ := device.Observe(pod, lookup)
		said[pod.Ref.UID] = device.Digest(observations, look.Asked)
		device.Doubt(said[pod.Ref.UID], node.doubt)
		for _, report := range said[pod.Ref.UID] {
			listed = append(listed, report.Device)
		}
	}
	concerned := func(key device.Key, scope device.Scope) []device.Key {
		switch {
		case key.Path() == device.PathPlugin:
			return device.Replicas(key, listed)
		case pool == nil || key.Driver != pool.Key.Driver || key.Pool != pool.Key.Pool:
			return []device.Key{key}
		}
		return device.Concerned(*pool, key, scope)
	}
	for _, pod := range pods {
		known := slices.ContainsFunc(look.Known, func(ref device.PodRef) bool { return ref.UID == pod.Ref.UID })
		read, says := reading.OfDevice(look.Device, said[pod.Ref.UID], l.catalogue, concerned, known)
		if !says {
			continue
		}
		looked.Readings = append(looked.Readings, read.Reading)
		if look.Device.Path() == device.PathPlugin && !read.Monitor {
			looked.Holders = append(looked.Holders, quarantine.Holder{Pod: pod.Ref})
		}
	}
	looked.Driver = driverSign(look.Device, said, node)
	slices.SortFunc(looked.Readings, func(a, b quarantine.Reading) int {
		return strings.Compare(a.Pod.UID, b.Pod.UID)
	})
	for _, ref := range look.Known {
		if !live[ref.UID] {
			looked.Ended = append(looked.Ended, ref.UID)
		}
	}
}

// driverSign tells what live Pods say of the other devices of a device's driver there.
func driverSign(key device.Key, said map[string][]device.DeviceReport, node nodeState) quarantine.DriverSign {
	sign := quarantine.DriverSilent
	if key.Path() == device.PathPlugin && key.Node == node.name && node.offers[key.Resource].Vouched() {
		sign = quarantine.DriverSpeaks
	}
	for _, reports := range said {
		for _, r := range reports {
			switch {
			case r.Device == key || reading.DriverOf(r.Device) != reading.DriverOf(key) || r.Report.Node != node.name:
			case r.Report.Counts() == device.Unknown:
				return quarantine.DriverUnknown
			default:
				sign = quarantine.DriverSpeaks
			}
		}
	}
	return sign
}

// nodeState is what a look found of the device's node.
type nodeState struct {
	name string
	// gone is set for a node that is deleted.
	gone bool
	// offers is nil where no node was read.
	offers map[string]device.Offer
}

// doubt says why a Healthy that the node's kubelet wrote can't be believed. Of
// another node's devices it knows nothing.
func (n nodeState) doubt(key device.Key) device.Staleness {
	if key.Path() == device.PathPlugin && key.Node == n.name && n.offers != nil && !n.offers[key.Resource].Vouched() {
		return device.PluginAbsent
	}
	return device.Fresh
}

// node reads what the node offers, whether it is ready, and when its Lease was last
// renewed.
func (l *LiveReader) node(ctx context.Context, looked *quarantine.Looked) (nodeState, error) {
	state := nodeState{name: looked.Node}
	if looked.Node == "" {
		return state, nil
	}
	node, err := l.client.CoreV1().Nodes().Get(ctx, looked.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		state.gone = true
		return state, nil
	}
	if err != nil {
		return state, fmt.Errorf("get node %s: %w", looked.Node, err)
	}
	state.offers = OffersOf(node)
	looked.Readiness = device.ReadyUnknown // as one without the condition is
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			looked.NodeReady, looked.Readiness = condition.Status == corev1.ConditionTrue, device.Readiness(condition.Status)
		}
	}
	lease, err := l.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, looked.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return state, nil
	}
	if err != nil {
		return state, fmt.Errorf("get the Lease of node %s: %w", looked.Node, err)
	}
	if lease.Spec.RenewTime != nil {
		looked.NodeLease = lease.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
	}
	return state, nil
}

// presence answers whether the device is listed; nil where nothing can be said.
func presence(look quarantine.Look, pool *device.Pool, node string, state nodeState) *quarantine.Inventory {
	key := look.Device
	// A device in a pool that isn't on the node was only seen from there.
	if state.gone && (pool == nil || pool.Node == node || pool.Generation == 0 && len(pool.Devices) == 0) {
		return &quarantine.Inventory{Missing: device.NodeDeleted}
	}
	if pool == nil {
		return state.presence(key)
	}
	moved := ""
	if to, ok := device.Renamed(*pool, key, look.Hardware); ok {
		moved = to.String()
	}
	if listed, ok := pool.Find(key.Device); ok {
		return &quarantine.Inventory{Present: true, Node: pool.Node, Now: listed.Incarnation, MovedTo: moved}
	}
	switch {
	case pool.Generation == 0 && len(pool.Devices) == 0 && !pool.Complete:
		return &quarantine.Inventory{Missing: device.PoolGone}
	case pool.Complete:
		return &quarantine.Inventory{Missing: device.MissingFromPool, MovedTo: moved}
	}
	return nil
}

// presence answers for a device-plugin device, as far as the node can: how many
// devices of its resource are listed.
func (n nodeState) presence(key device.Key) *quarantine.Inventory {
	if n.offers == nil {
		return nil
	}
	offer := n.offers[key.Resource]
	if offer.Listed == 0 {
		return &quarantine.Inventory{Node: key.Node, Missing: device.AllocatableDropped}
	}
	return &quarantine.Inventory{Node: key.Node, Present: true, Listed: offer.Listed}
}

// holders are the Pods for which a claim has the device allocated. reservedFor is
// authoritative: it covers claims generated for extended resources, and Pods that
// have not started. Claims with admin access hold nothing, nor do Sickbay's own.
func holders(key device.Key, claims map[string]device.Claim) []quarantine.Holder {
	var found []quarantine.Holder
	for _, claim := range claims {
		has := slices.ContainsFunc(claim.Results, func(a device.Allocated) bool {
			return a.Device == key && a.Holds()
		})
		if !has {
			continue
		}
		for _, pod := range claim.ReservedFor {
			found = append(found, quarantine.Holder{Pod: pod, Claim: claim.Name})
		}
	}
	slices.SortFunc(found, func(a, b quarantine.Holder) int { return strings.Compare(a.Pod.UID+a.Claim, b.Pod.UID+b.Claim) })
	return found
}

func nodeOf(key device.Key, pool *device.Pool) string {
	if key.Path() == device.PathPlugin {
		return key.Node
	}
	return pool.Node
}

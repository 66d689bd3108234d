package listing

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

// Join puts what was read together. It is deterministic: the order in which
// anything was read doesn't show.
func Join(cluster Cluster, cases []Case, now time.Time) Listing {
	_, listing := join(cluster, cases, now)
	return listing
}

// join is Join, and what it was made from.
func join(cluster Cluster, cases []Case, now time.Time) (*joiner, Listing) {
	j := &joiner{
		devices: map[device.Key]*Device{},
		reports: map[device.Key][]device.Report{}, open: map[string]bool{}, looked: map[device.Key]time.Time{},
	}
	if cluster.Nodes != nil {
		j.nodes = map[string]Node{}
		for _, n := range cluster.Nodes {
			j.nodes[n.Name] = n
		}
	}
	j.pools(cluster.Slices, cluster.Classes)
	j.claims(cluster.Claims)
	unmapped := j.pods(cluster.Pods, cluster.Claims, now)
	j.marks(cluster.Marks)
	lost := j.cases(cases)
	j.aged(cluster.Delays, now)
	listing := Listing{
		At: now, Devices: make([]Device, 0, len(j.devices)), Unmapped: unmapped,
		Problems: slices.Concat(cluster.Problems, lost), Notes: cluster.Notes, Blind: cluster.Blind,
		openClasses: slices.Sorted(maps.Keys(j.open)), noClasses: cluster.NoClasses,
	}
	for _, d := range j.devices {
		if n, there := j.nodes[d.Node]; there {
			d.NodeOut, d.NodeIsolated = n.Out(), n.Isolated
		}
		d.Unmonitored = d.Health == device.Unknown && d.Stale == device.Fresh && d.NodeOut == device.Fresh && !cluster.Known.monitors(d.Key, d.Node)
		slices.SortFunc(d.Holders, func(a, b Holder) int { return strings.Compare(a.String()+a.UID, b.String()+b.UID) })
		d.Holders = slices.CompactFunc(d.Holders, func(a, b Holder) bool { return a.UID == b.UID })
		slices.Sort(d.Classes)
		d.Classes = slices.Compact(d.Classes)
		listing.Devices = append(listing.Devices, *d)
	}
	slices.SortFunc(listing.Devices, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return j, listing
}

type joiner struct {
	devices map[device.Key]*Device
	// byWorkflow is made when it is first asked for: most answers need none of it.
	byWorkflow map[string]device.Key
	// byPool is nil where the slices could not be read, nodes where the nodes couldn't.
	byPool map[device.PoolKey]device.Pool
	nodes  map[string]Node
	// reports are what Pods say now, with why a Healthy can't be believed.
	reports map[device.Key][]device.Report
	// looked is when a case last looked at its device past every cache.
	looked map[device.Key]time.Time
	// open are the classes that can't be judged for some device.
	open map[string]bool
}

func (j *joiner) device(key device.Key) *Device {
	d, ok := j.devices[key]
	if !ok {
		d = &Device{Name: key.String(), Path: key.Path(), Key: key, Node: key.Node}
		if d.Path == device.PathPlugin {
			d.Classes = []string{key.Resource}
		}
		j.devices[key] = d
	}
	return d
}

// ofWorkflow finds the device that a workflow is of.
func (j *joiner) ofWorkflow(id string) (device.Key, bool) {
	if len(j.byWorkflow) != len(j.devices) {
		j.byWorkflow = make(map[string]device.Key, len(j.devices))
		for key := range j.devices {
			j.byWorkflow[workflow.ID(key)] = key
		}
	}
	key, ok := j.byWorkflow[id]
	return key, ok
}

func (j *joiner) pools(all []device.Slice, classes []device.Class) {
	if all == nil {
		return
	}
	j.byPool = map[device.PoolKey]device.Pool{}
	byPool := map[device.PoolKey][]device.Slice{}
	for _, s := range all {
		key := device.PoolKey{Driver: s.Driver, Pool: s.Pool}
		byPool[key] = append(byPool[key], s)
	}
	for key, ofPool := range byPool {
		pool := device.AssemblePool(key, ofPool)
		j.byPool[key] = pool
		for _, listed := range pool.Devices {
			d := j.device(listed.Key)
			d.Listed, d.Node = true, pool.Node
		}
		for _, s := range ofPool {
			for _, listed := range s.Devices {
				j.classify(pool, listed, classes)
			}
		}
	}
}

// classify finds the classes that a device of a slice belongs to.
func (j *joiner) classify(pool device.Pool, listed device.Listed, classes []device.Class) {
	key := device.Key{Driver: pool.Key.Driver, Pool: pool.Key.Pool, Device: listed.Name}
	d, ok := j.devices[key]
	if !ok {
		return
	}
	for _, class := range classes {
		switch class.Admits(key.Driver, listed) {
		case device.Member:
			d.Classes = append(d.Classes, class.Name)
		case device.Undecided:
			j.open[class.Name] = true
		}
	}
}

// claims finds the holders on the DRA path: reservedFor says who may use the
// device, whether or not a Pod runs by now.
func (j *joiner) claims(all []device.Claim) {
	for _, claim := range all {
		for _, result := range claim.Results {
			if !result.Holds() {
				continue
			}
			d := j.device(result.Device)
			if result.Class != "" {
				d.Classes = append(d.Classes, result.Class)
			}
			for _, pod := range claim.ReservedFor {
				d.Holders = append(d.Holders, Holder{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Claim: claim.Name})
			}
		}
	}
}

func (j *joiner) pods(pods []device.Pod, claims []device.Claim, now time.Time) []device.Unmapped {
	claimOf := lookup(claims)
	unmapped := []device.Unmapped{}
	for _, pod := range pods {
		observations, unknown := device.Observe(pod, claimOf)
		for _, u := range unknown {
			if u.Health.WorseThan(device.Healthy) {
				unmapped = append(unmapped, u)
			}
		}
		for _, seen := range device.Digest(observations, now) {
			if seen.Report.Health == device.Healthy {
				seen.Report.Stale = j.doubts(seen.Device, pod.Node)
			}
			j.reports[seen.Device] = append(j.reports[seen.Device], seen.Report)
			d := j.device(seen.Device)
			d.Listed, d.Node = true, pod.Node
			if seen.Device.Path() == device.PathPlugin && !seen.Report.Monitor {
				d.Holders = append(d.Holders, Holder{Namespace: pod.Ref.Namespace, Name: pod.Ref.Name, UID: pod.Ref.UID})
			}
		}
	}
	for key, ofDevice := range j.reports {
		evidence := device.Fuse(ofDevice)
		d := j.device(key)
		d.Health, d.Stale, d.Message = evidence.Value, evidence.Stale, evidence.Message
	}
	slices.SortFunc(unmapped, func(a, b device.Unmapped) int {
		return strings.Compare(a.Pod.String()+"\x00"+a.Container+"\x00"+a.Entry+"\x00"+a.ID, b.Pod.String()+"\x00"+b.Container+"\x00"+b.Entry+"\x00"+b.ID)
	})
	return unmapped
}

// marks shows what each mark says of its case. A case that answers overrides it.
func (j *joiner) marks(all []kube.Mark) {
	for _, mark := range all {
		d := j.device(mark.Device)
		if d.Node == "" {
			d.Node = mark.Node
		}
		state := string(quarantine.MarkInForce)
		if !mark.Intact {
			state = markChanged
		}
		d.Mark = &Mark{State: state, Name: mark.Found.Name, Epoch: mark.Found.Epoch}
		d.Phase, d.Source = mark.Found.Phase(), SourceMark
		d.Reason, d.Epoch, d.Attempt = string(mark.Found.Reason), mark.Found.Epoch, mark.Found.Attempt
		if d.Message == "" {
			d.Message = mark.Found.Message
		}
		if mark.Found.Severity != 0 {
			d.Severity = mark.Found.Severity.String()
		}
		if first := cmp.Or(mark.Found.FirstNotGood, mark.Found.Since); first > 0 {
			d.Since = moment(time.UnixMilli(first))
		}
	}
}

// cases lays what Temporal knows over it. It returns what has to be said about
// cases that no device was found for.
func (j *joiner) cases(all []Case) []string {
	var lost []string
	for _, c := range all {
		if c.State != nil {
			j.answered(c)
			continue
		}
		key, ok := j.ofWorkflow(c.Workflow)
		if !ok {
			lost = append(lost, "workflow "+c.Workflow+" has an open case of a device that the cluster doesn't list, and no worker answers for it")
			continue
		}
		d := j.devices[key]
		d.Phase, d.Reason, d.Epoch = c.Phase, c.Reason, c.Epoch
		d.Workflow, d.Source = c.Workflow, SourceAttributes
		if d.Node == "" {
			d.Node = c.Node
		}
		if c.Epoch > 0 {
			d.Since = moment(time.UnixMilli(c.Epoch))
		}
	}
	slices.Sort(lost)
	return lost
}

// notGoodSince is when a device was first not good: where that isn't told, it was at the
// latest when its case was opened.
func notGoodSince(first, opened time.Time) *time.Time {
	if first.IsZero() {
		first = opened
	}
	if first.IsZero() {
		return nil
	}
	return moment(first)
}

// answered takes over what a workflow said of its case.
func (j *joiner) answered(c Case) {
	known := c.State.Case
	if !known.Open() {
		return
	}
	d := j.device(known.Device)
	if d.Node == "" {
		d.Node = known.Node
	}
	d.Phase, d.Waiting, d.Reason = known.Phase, known.Waiting, string(known.Reason.Code)
	d.Severity, d.Epoch, d.Attempt = known.Severity.String(), known.Epoch, known.Attempt
	d.Since, d.Workflow, d.Source = notGoodSince(known.FirstNotGood, known.Since), c.Workflow, SourceCase
	j.doubt(d, known.Reports)
	j.looked[d.Key] = known.LookedAt
	if d.Message == "" {
		d.Message = known.Message
	}
	if known.Mark.State == quarantine.MarkNone {
		return
	}
	found := d.Mark
	d.Mark = &Mark{State: string(known.Mark.State), Name: known.Mark.Name, Epoch: known.Epoch, Detail: known.Mark.Detail}
	if found != nil {
		// What is in the cluster is newer than what the case knows of it.
		d.Mark.Name, d.Mark.Epoch = found.Name, found.Epoch
		if found.State == markChanged {
			d.Mark.State = markChanged
		}
	}
}

// doubt takes over which Healthy a case doesn't believe. It remembers what a single
// reading of the cluster doesn't tell.
func (j *joiner) doubt(d *Device, believed []device.Report) {
	said := j.reports[d.Key]
	for i, r := range said {
		for _, known := range believed {
			if known.Pod.UID == r.Pod.UID && known.Health == r.Health && !known.Ended && known.Stale != device.Fresh {
				said[i].Stale = known.Stale
			}
		}
	}
	if len(said) > 0 {
		evidence := device.Fuse(said)
		d.Health, d.Stale, d.Message = evidence.Value, evidence.Stale, evidence.Message
	}
}

func moment(t time.Time) *time.Time {
	utc := t.UTC()
	return &utc
}

package starter

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
)

// That a driver reported a health on a node before tells an Unknown that is a loss from
// one of a driver that has no health service. No object of the cluster says so, so the
// leading starter writes it down: in one ConfigMap, which whoever leads next reads. One
// object and not one for each driver, because the right to change it can then be
// narrowed to its name: other ConfigMaps of the namespace say how Sickbay behaves.

// maxMemory bounds the ConfigMap's text; etcd takes no object beyond 1.5 MiB, and the
// API server no ConfigMap beyond 1 MiB. It is enough for 20,000 nodes' names of 45 bytes.
const maxMemory = 900_000

// memory keeps who ever reported health across a restart of all starters.
type memory struct {
	objects typedv1.ConfigMapInterface
	name    string
	tracker *tracker
	clock   clock.WithTicker
	log     *slog.Logger
	// first is the pause before the first write, every the one between two.
	first, every time.Duration
	limit        time.Duration
	// urged asks for a write now: an incident has begun, and whoever takes over in the
	// middle of it has to know what is a loss.
	urged chan struct{}

	// object is what was read or written last; nil where there is none.
	object *corev1.ConfigMap
	// read is set once it is known what there is.
	read bool
	// failed and full keep what is said of them from being said each time.
	failed, full bool
}

// recall reads what earlier leaders wrote down. Where that can't be, an Unknown counts
// as one that was never anything else until it can, and no incident ends by that.
func (m *memory) recall(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	object, err := m.objects.Get(call, m.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		m.object, m.read = nil, true
		m.tracker.remember(nil)
		return
	case err != nil:
		m.trouble(ctx, "read", err)
		return
	}
	m.object, m.read = object, true
	m.tracker.remember(readMemory(object.Data))
}

// run writes down what is new, until ctx ends.
func (m *memory) run(ctx context.Context) {
	pause := m.first
	for {
		timer := m.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-m.urged:
			timer.Stop()
		}
		if !m.read {
			m.recall(ctx)
		}
		if pause = m.first; m.read {
			pause = m.every
			m.write(ctx)
		}
	}
}

// urge has what is known written down soon. A starter that is alone has no memory.
func (m *memory) urge() {
	if m == nil {
		return
	}
	select {
	case m.urged <- struct{}{}:
	default: // it is asked for already
	}
}

// write brings the ConfigMap up to date. One that somebody else has changed meanwhile
// is read and taken in, and written the next time.
func (m *memory) write(ctx context.Context) {
	known, ok := m.tracker.remembered()
	if !ok {
		return
	}
	data, left := writeMemory(known)
	if left != "" && !m.full {
		m.log.Warn("not all that is known of who ever reported health fits into a ConfigMap; on the nodes that are left out, an Unknown that comes right after a restart of all starters opens no case; SICKBAY_UNKNOWN_POLICY can make it one",
			"configmap", m.name, "driver", left)
	}
	m.full = left != ""
	if m.object != nil && maps.Equal(m.object.Data, data) || m.object == nil && len(data) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{"app.kubernetes.io/part-of": "sickbay"}}}
	var err error
	var written *corev1.ConfigMap
	if m.object == nil {
		next.Data = data
		written, err = m.objects.Create(call, next, metav1.CreateOptions{})
	} else {
		next = m.object.DeepCopy()
		next.Data = data
		written, err = m.objects.Update(call, next, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		m.object, m.failed = written, false
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		m.read = false
	default:
		m.trouble(ctx, "write", err)
	}
}

// trouble says once that the memory can't be read or written, and what follows.
func (m *memory) trouble(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || m.failed {
		return
	}
	m.failed = true
	remedy := "tried again every " + m.every.String() + " at the latest"
	if apierrors.IsForbidden(err) {
		remedy = "grant the starter's service account the verbs get and update on this ConfigMap, and create on configmaps, in this namespace"
	}
	m.log.Warn("who ever reported health can't be kept; after a restart of all starters a lost health is taken for one that never was",
		"configmap", m.name, "error", fmt.Errorf("%s: %w", verb, err), "remedy", remedy)
}

// readMemory reads the ConfigMap's data; what isn't Sickbay's is passed over.
func readMemory(data map[string]string) []pair {
	var known []pair
	for file, text := range data {
		for node := range strings.Lines(text) {
			if node = strings.TrimSpace(node); node != "" {
				known = append(known, pair{driverOfFile(file), node})
			}
		}
	}
	slices.SortFunc(known, comparePairs)
	return known
}

// writeMemory puts the data together: for each driver the names of its nodes, sorted,
// one a line. Where not all fit, the drivers with fewest nodes go first, and left is
// the first of which not all are there.
func writeMemory(known []pair) (data map[string]string, left string) {
	nodes := map[string][]string{}
	for _, p := range known {
		nodes[p.driver] = append(nodes[p.driver], p.node)
	}
	drivers := slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		if len(nodes[a]) != len(nodes[b]) {
			return len(nodes[a]) - len(nodes[b])
		}
		return strings.Compare(a, b)
	})
	data = map[string]string{}
	size := 0
	for _, driver := range drivers {
		slices.Sort(nodes[driver])
		var text strings.Builder
		for _, node := range nodes[driver] {
			if size += len(node) + 1; size > maxMemory {
				left = driver
				break
			}
			text.WriteString(node + "\n")
		}
		data[fileOfDriver(driver)] = text.String()
		if left != "" {
			break
		}
	}
	return data, left
}

// fileOfDriver names a driver's, or a plugin resource's, part of the data. Its keys may
// hold no slash, and a domain no underscore.
func fileOfDriver(driver string) string { return strings.Replace(driver, "/", "_", 1) }

func driverOfFile(file string) string { return strings.Replace(file, "_", "/", 1) }

// remember takes in who reported health before this starter began. Nodes that are
// deleted are passed over.
func (t *tracker) remember(known []pair) {
	t.do(func() {
		t.recalled = true
		for _, p := range known {
			if _, there := t.nodes[p.node]; !there && t.complete {
				continue
			}
			t.pairKnown(p)
		}
	})
}

// remembered lists who ever reported health, once all nodes have been listed.
func (t *tracker) remembered() (known []pair, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.complete {
		return nil, false
	}
	for p := range t.known {
		if _, there := t.nodes[p.node]; there {
			known = append(known, p)
		}
	}
	return known, true
}

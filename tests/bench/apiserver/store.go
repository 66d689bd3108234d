package apiserver

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kept is how many events of a resource a watch can still begin at. Whoever comes
// from further back is told that it is too late, and lists.
const kept = 20_000

// object is a Kubernetes object as the store needs it. The types of k8s.io/api have
// these methods.
type object interface {
	metav1.Object
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// resource is one kind of objects.
type resource struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
	empty      func() object
	// selects are the fields that it can be selected by, beside name and namespace.
	selects func(object) fields.Set
}

// item is one version of an object. Objects are kept as the bytes that most clients
// ask for: a fleet's worth of Go structs would take ten times as much.
type item struct {
	key      string
	version  uint64
	selected fields.Set
	protobuf []byte
}

// event is one change.
type event struct {
	kind string // ADDED, MODIFIED
	*item
}

// store holds the objects of all resources, and their latest changes.
type store struct {
	mu      sync.Mutex
	version uint64
	tables  map[schema.GroupResource]*table
}

// table is one resource in the store; the store's mutex guards it.
type table struct {
	resource
	keys  []string // sorted
	items map[string]*item
	// events are the latest changes, dropped how many there were before them, and
	// forgotten the version of the last of those.
	events    []event
	dropped   int
	forgotten uint64
	// changed is closed at the next change.
	changed chan struct{}
}

func newStore(resources []resource) *store {
	s := &store{version: 1, tables: map[schema.GroupResource]*table{}}
	for _, r := range resources {
		s.tables[r.GroupResource()] = &table{resource: r, items: map[string]*item{}, changed: make(chan struct{})}
	}
	return s
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

// put writes an object at a new version.
func (s *store) put(of schema.GroupResource, o object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putLocked(s.tables[of], o)
}

func (s *store) putLocked(t *table, o object) error {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	encoded, err := o.Marshal()
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", t.kind, o.GetName(), err)
	}
	written := &item{key: keyOf(o.GetNamespace(), o.GetName()), version: s.version, protobuf: encoded, selected: fields.Set{
		"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(),
	}}
	if t.selects != nil {
		for field, value := range t.selects(o) {
			written.selected[field] = value
		}
	}
	kind := "MODIFIED"
	if t.items[written.key] == nil {
		kind = "ADDED"
		at, _ := slices.BinarySearch(t.keys, written.key)
		t.keys = slices.Insert(t.keys, at, written.key)
	}
	t.items[written.key] = written
	if len(t.events) == 2*kept {
		t.forgotten = t.events[kept-1].version
		t.events, t.dropped = slices.Clone(t.events[kept:]), t.dropped+kept
	}
	t.events = append(t.events, event{kind, written})
	close(t.changed)
	t.changed = make(chan struct{})
	return nil
}

// read decodes an object; nil if there is none.
func (s *store) read(of schema.GroupResource, key string) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[of].read(key)
}

func (t *table) read(key string) (object, error) {
	found := t.items[key]
	if found == nil {
		return nil, nil
	}
	o := t.empty()
	if err := o.Unmarshal(found.protobuf); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", t.kind, key, err)
	}
	return o, nil
}

// edit changes an object that is there.
func (s *store) edit(of schema.GroupResource, key string, change func(object)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[of]
	o, err := t.read(key)
	if err != nil {
		return err
	}
	if o == nil {
		return fmt.Errorf("edit %s %s: there is none", t.kind, key)
	}
	change(o)
	return s.putLocked(t, o)
}

// forget drops the changes so far, as a server does that has just started.
func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.dropped, t.forgotten, t.events = t.dropped+len(t.events), s.version, nil
	}
}

// page is a part of a list.
type page struct {
	items   []*item
	version uint64
	// next is the key after which the next page begins; empty for the last page.
	next string
	left int
}

// list gives the objects after a key that a selector selects, at most limit of them
// unless that is zero. Pages are of what is there now: nothing is ever deleted here,
// and a watch from the first page's version brings what changed since.
func (s *store) list(of schema.GroupResource, selector fields.Selector, after string, limit int) page {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[of]
	begin, found := slices.BinarySearch(t.keys, after)
	if found {
		begin++
	}
	p := page{version: s.version}
	for i, key := range t.keys[begin:] {
		if !selector.Matches(t.items[key].selected) {
			continue
		}
		if limit > 0 && len(p.items) == limit {
			p.next, p.left = p.items[limit-1].key, len(t.keys)-begin-i
			break
		}
		p.items = append(p.items, t.items[key])
	}
	return p
}

// cursor is a place in a resource's changes.
type cursor struct {
	store *store
	table *table
	at    int
}

// after gives the place behind a version; ok is false if that is too long ago.
func (s *store) after(of schema.GroupResource, version uint64) (c *cursor, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[of]
	if version < t.forgotten {
		return nil, false
	}
	at, found := slices.BinarySearchFunc(t.events, version, func(e event, v uint64) int { return cmp.Compare(e.version, v) })
	if found {
		at++
	}
	return &cursor{store: s, table: t, at: t.dropped + at}, true
}

// next gives what changed since, the store's version, and what to wait for if it is
// nothing. ok is false if the reader was too slow.
func (c *cursor) next() (events []event, version uint64, changed <-chan struct{}, ok bool) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.at < c.table.dropped {
		return nil, 0, nil, false
	}
	events = slices.Clone(c.table.events[c.at-c.table.dropped:])
	c.at += len(events)
	return events, c.store.version, c.table.changed, true
}

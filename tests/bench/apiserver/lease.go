package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

var leases = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// leaseEvery is a kubelet's: a quarter of 40 s.
const leaseEvery = 10 * time.Second

// writeLease creates or updates a Lease, so that an election can be held here.
func (s *Server) writeLease(w http.ResponseWriter, r *http.Request, asked request) error {
	began := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &coordinationv1.Lease{})
	if err != nil {
		return failure{http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()}
	}
	lease, ok := decoded.(*coordinationv1.Lease)
	if !ok {
		return failure{http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("want a Lease, not %T", decoded)}
	}
	lease.Namespace = asked.namespace
	if err := s.store.putLease(asked.table, lease, r.Method == http.MethodPost); err != nil {
		return err
	}
	verb := "update"
	if r.Method == http.MethodPost {
		verb = "create"
	}
	s.called(verb, asked.table.Resource, began)
	return writeObject(w, r, asked.table, lease)
}

// putLease writes a Lease if it isn't there yet, or is as its writer last saw it.
func (s *store) putLease(t *table, lease *coordinationv1.Lease, create bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := t.items[keyOf(lease.Namespace, lease.Name)]
	switch {
	case create && before != nil:
		return failure{http.StatusConflict, metav1.StatusReasonAlreadyExists, "leases " + lease.Name + " already exists"}
	case !create && before == nil:
		return failure{http.StatusNotFound, metav1.StatusReasonNotFound, "leases " + lease.Name + " not found"}
	case !create && lease.ResourceVersion != fmt.Sprint(before.version):
		return failure{http.StatusConflict, metav1.StatusReasonConflict, "leases " + lease.Name + " was changed meanwhile"}
	}
	return s.putLocked(t, lease)
}

// nodeLease is the Lease of a node, renewed at the last time that it was due. It is
// made when it is asked for, because nobody here watches 10,000 of them.
func (s *Server) nodeLease(asked request) object {
	if asked.table.GroupResource() != leases || asked.namespace != corev1.NamespaceNodeLease {
		return nil
	}
	node, err := s.store.read(nodes, keyOf("", asked.name))
	if node == nil || err != nil {
		return nil
	}
	seconds := int32(40)
	renewed := metav1.NewMicroTime(time.Now().Truncate(leaseEvery))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: asked.name, Namespace: asked.namespace, UID: node.GetUID(), ResourceVersion: fmt.Sprint(renewed.Unix()),
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &asked.name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
}

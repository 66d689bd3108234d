package apiserver

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// form is how a client wants its answer.
type form struct{ media string }

// formOf reads an Accept header. Anything that isn't protobuf gets JSON.
func formOf(accept string) form {
	if strings.Contains(accept, mediaProtobuf) {
		return form{mediaProtobuf}
	}
	return form{mediaJSON}
}

// watched is the media type of a watch.
func (f form) watched() string {
	if f.media == mediaProtobuf {
		return mediaProtobuf + ";stream=watch"
	}
	return f.media
}

// one is an object as a client takes it.
func (f form) one(t *table, protobuf []byte) ([]byte, error) {
	if f.media == mediaProtobuf {
		return envelope(t.resource, t.kind, protobuf)
	}
	o := t.empty()
	if err := o.Unmarshal(protobuf); err != nil {
		return nil, fmt.Errorf("decode a %s: %w", t.kind, err)
	}
	return f.object(t, o)
}

// object writes an object that isn't encoded yet.
func (f form) object(t *table, o object) ([]byte, error) {
	if f.media == mediaProtobuf {
		encoded, err := o.Marshal()
		if err != nil {
			return nil, err
		}
		return envelope(t.resource, t.kind, encoded)
	}
	o.GetObjectKind().SetGroupVersionKind(t.GroupVersion().WithKind(t.kind))
	return json.Marshal(o)
}

// list puts a page together of objects that are encoded already.
func (f form) list(t *table, p page) ([]byte, error) {
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(p.version, 10)}
	if p.next != "" {
		left := int64(p.left)
		meta.Continue, meta.RemainingItemCount = continueAfter(p.next), &left
	}
	if f.media == mediaProtobuf {
		// Every list of the API has its metadata as field 1 and its items as field 2.
		encoded, err := meta.Marshal()
		if err != nil {
			return nil, err
		}
		size := len(encoded) + 16
		for _, i := range p.items {
			size += len(i.protobuf) + binary.MaxVarintLen32 + 1
		}
		body := field(make([]byte, 0, size), 1, encoded)
		for _, i := range p.items {
			body = field(body, 2, i.protobuf)
		}
		return envelope(t.resource, t.kind+"List", body)
	}
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}{
		TypeMeta: metav1.TypeMeta{Kind: t.kind + "List", APIVersion: t.GroupVersion().String()},
		Metadata: meta, Items: []json.RawMessage{},
	}
	for _, i := range p.items {
		o, err := f.one(t, i.protobuf)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, o)
	}
	return json.Marshal(list)
}

// event frames one event of a watch.
func (f form) event(kind string, one []byte) ([]byte, error) {
	if f.media != mediaProtobuf {
		line, err := json.Marshal(struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}{kind, one})
		return append(line, '\n'), err
	}
	encoded, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: one}}).Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(encoded))), encoded...), nil
}

// envelope is the protobuf form of an object on the wire: four bytes, then a
// runtime.Unknown (k8s.io/apimachinery pkg/runtime/serializer/protobuf).
func envelope(r resource, kind string, body []byte) ([]byte, error) {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: r.GroupVersion().String(), Kind: kind}, Raw: body}
	encoded, err := unknown.Marshal()
	return append([]byte{'k', '8', 's', 0}, encoded...), err
}

// field appends a length-delimited protobuf field.
func field(to []byte, number byte, content []byte) []byte {
	to = append(to, number<<3|2)
	to = binary.AppendUvarint(to, uint64(len(content)))
	return append(to, content...)
}

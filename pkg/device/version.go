package device

import "strings"

// Version is a status version: the Pod's resourceVersion at which the present,
// normalised health of one device in that Pod was first seen. Versions of one
// Pod are ordered (decimal numbers of any size, comparable since Kubernetes
// 1.35); those of different Pods are never compared.
type Version string

// Compare orders two versions of one Pod: -1, 0 or 1. The empty version is older
// than any. A text that isn't a decimal number can't be ordered by the API's
// rules; such versions compare by length and then by text, so that the order is
// at least the same everywhere.
func (v Version) Compare(other Version) int {
	a, b := strings.TrimLeft(string(v), "0"), strings.TrimLeft(string(other), "0")
	if len(a) != len(b) {
		if len(a) < len(b) {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

// Newer tells whether v was written after other.
func (v Version) Newer(other Version) bool { return v.Compare(other) > 0 }

package directory

import (
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Shards is the number of shards. It is part of the format: another number would
// put every device elsewhere.
const Shards = 64

// Format is the version of the keys and fields; a shard's meta hash carries it.
const Format = "1"

// Field is a field of an entry. Each has one writer.
type Field string

const (
	// FieldSeen is the starter's.
	FieldSeen Field = "seen"
	// FieldCase is the device workflow's.
	FieldCase Field = "case"
)

// The indexes. A device is in one set of each at most, but in one for each of its
// classes.
const (
	IndexNode   = "node"
	IndexDriver = "driver"
	IndexClass  = "class"
	IndexPhase  = "phase"
	IndexReason = "reason"
)

// ShardOf is the shard of a device: CRC-32 (IEEE) of its name, modulo Shards.
func ShardOf(key device.Key) int { return int(crc32.ChecksumIEEE([]byte(key.String())) % Shards) }

// names gives the keys of a directory.
type names struct{ prefix string }

// tag begins every key of a shard. What stands in braces decides a key's slot on
// a cluster.
func (n names) tag(shard int) string { return fmt.Sprintf("{%s-%02d}:", n.prefix, shard) }

func (n names) meta(shard int) string        { return n.tag(shard) + "meta" }
func (n names) devices(shard int) string     { return n.tag(shard) + "devices" }
func (n names) transitions(shard int) string { return n.tag(shard) + "transitions" }
func (n names) snapshot(shard int) string    { return n.tag(shard) + "snapshot" }
func (n names) making(shard int) string      { return n.tag(shard) + "snapshot:making" }

// cases holds the devices of a shard that have a case.
func (n names) cases(shard int) string { return n.tag(shard) + casesName }

const casesName = "cases"

func (n names) device(key device.Key) string { return n.tag(ShardOf(key)) + "device:" + key.String() }

// latest holds the IDs of a device's latest decisions, for a while.
func (n names) latest(key device.Key) string {
	return n.tag(ShardOf(key)) + "decided:" + key.String()
}

// index is the key of an index set in one shard.
func (n names) index(shard int, index, value string) string {
	return n.tag(shard) + indexName(index, value)
}

// indexName is the part of an index set's key after the tag. A device plugin's ID
// can be any text, but nothing else that is indexed has a line break in it.
func indexName(index, value string) string {
	return "by:" + index + ":" + strings.ReplaceAll(value, "\n", " ")
}

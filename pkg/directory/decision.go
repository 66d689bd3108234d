package directory

// This file is about decisions in the stream of transitions: the part of the audit
// trail that can be followed. The log lines of the workers and Temporal's
// histories have every decision too, and longer.

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// FieldDecision marks a transition that changes no field: it is a decision.
const FieldDecision Field = "decision"

const (
	// latestKept is how many decisions of a device are remembered to know one that
	// comes again, latestFor for how long. A case announces fewer at once, and
	// repeats an announcement after a minute at most.
	latestKept = 64
	latestFor  = time.Hour
	// clockSlack is how far the clocks of Redis and of whoever decides may differ.
	clockSlack = 5 * time.Minute
)

// Decision is what was seen of a device, or of many at once, what was decided, why and
// by whom.
type Decision struct {
	Device device.Key `json:"device"`
	// Incident is the scope of the incident that was decided about; empty where it was
	// a device. Device is then the incident's name, as IncidentKey gives it.
	Incident string `json:"incident,omitempty"`
	// Budget is the scope whose budget or pause was decided about; empty where it was
	// neither. Device is then BudgetKey.
	Budget string `json:"budget,omitempty"`
	// Whole tells that it was about the whole Node. Device is then its name, as NodeKey
	// gives it.
	Whole bool `json:"whole,omitempty"`
	// Node is where the device was then, as far as that was known.
	Node string `json:"node,omitempty"`
	quarantine.Notice
}

// IncidentKey is the name under which decisions about an incident are in the transitions:
// that of its workflow, read as a device's, with the driver's version, or all, where a
// device stands. Whoever follows decisions about devices needs to know nothing of
// incidents.
func IncidentKey(scope incident.Scope) device.Key {
	part := "all"
	if scope.Version != "" {
		part = strings.Trim(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, strings.ToLower(scope.Version)), "-")
		scope.Version = ""
	}
	key, err := device.NewDRA(incidentDriver, scope.String(), part)
	if err != nil { // its name could be no pool's
		return device.Key{Driver: incidentDriver, Pool: "other", Device: "all"}
	}
	return key
}

// incidentDriver stands where a device's driver does. No driver is called so: it has a
// domain's name.
const incidentDriver = "incident"

// IncidentDecision is a decision about an incident, which began at a time.
func IncidentDecision(scope incident.Scope, since time.Time, n incident.Notice) Decision {
	d := Decision{
		Device: IncidentKey(scope), Incident: scope.String(), Node: scope.Node,
		Notice: quarantine.Notice{
			Seq: n.Seq, At: n.At, Kind: quarantine.NoticeKind(n.Kind), Alert: n.Alert, Phase: quarantine.Phase(n.Phase),
			Actor: n.Actor, Seen: n.Seen, Text: n.Text,
		},
	}
	if !since.IsZero() {
		d.Epoch = since.UnixMilli()
	}
	return d
}

// BudgetKey is the name under which decisions about budgets and pauses are in the
// transitions: one for all of them, because the workflow that decides them counts them
// together.
var BudgetKey = device.Key{Driver: "budget", Pool: "permits", Device: "all"}

// BudgetDecision is a decision about a budget or a pause. It is seen in its scope.
func BudgetDecision(n budget.Notice) Decision {
	d := Decision{
		Device: BudgetKey, Budget: n.Scope,
		Notice: quarantine.Notice{Seq: n.Seq, At: n.At, Kind: quarantine.NoticeKind(n.Kind), Alert: n.Alert, Actor: n.Actor, Seen: n.Scope, Text: n.Text},
	}
	if scope, err := budget.ParseScope(n.Scope); err == nil && scope.Kind == budget.Node {
		d.Node = scope.Name
	}
	return d
}

// nodeDriver stands where a device's driver does; no driver is called so.
const nodeDriver = "node"

// NodeKey is the name under which decisions about a whole node are in the transitions.
func NodeKey(node string) device.Key {
	return device.Key{Driver: nodeDriver, Pool: node, Device: "all"}
}

// NodeDecision is a decision about a whole node.
func NodeDecision(node string, epoch int64, n isolation.Notice) Decision {
	return Decision{
		Device: NodeKey(node), Whole: true, Node: node,
		Notice: quarantine.Notice{
			Seq: n.Seq, At: n.At, Kind: quarantine.NoticeKind(n.Kind), Alert: n.Alert, Phase: quarantine.Phase(n.Phase),
			Epoch: epoch, Actor: n.Actor, Seen: n.Seen, Text: n.Text,
		},
	}
}

// ID tells decisions of one device apart.
func (d Decision) ID() string {
	return fmt.Sprintf("%d/%d/%d", d.Epoch, d.Seq, d.At.UnixNano())
}

// Append adds decisions to the transitions, in their order. One that is there
// already is a Duplicate. An error says that it isn't known which were added.
func (d *Directory) Append(ctx context.Context, all []Decision) ([]Result, error) {
	return d.run(ctx, d.decide, len(all), func(i int) ([]string, []any) {
		decision := all[i]
		shard := ShardOf(decision.Device)
		keys := []string{d.names.meta(shard), d.names.device(decision.Device), d.names.transitions(shard), d.names.latest(decision.Device)}
		return keys, []any{decision.Device.String(), decision.ID(), encode(decision), latestKept, int(latestFor.Seconds())}
	})
}

// readDecision reads the value of a decision's transition, and the node that the
// entry had.
func readDecision(value, node string) (*Decision, error) {
	var decision Decision
	if err := json.Unmarshal([]byte(value), &decision); err != nil {
		return nil, err
	}
	if decision.Node == "" {
		decision.Node = node
	}
	if decision.Node == "" {
		decision.Node = decision.Device.Node
	}
	return &decision, nil
}

// Decisions gives the decisions since a time that the transitions have, shard by
// shard; without shards, of all. How far they reach is Reach's to say.
func (d *Directory) Decisions(ctx context.Context, since time.Time, shards ...int) iter.Seq2[Decision, error] {
	if len(shards) == 0 {
		for shard := range Shards {
			shards = append(shards, shard)
		}
	}
	return func(yield func(Decision, error) bool) {
		from := make(map[int]string, len(shards))
		for _, shard := range shards {
			from[shard] = strconv.FormatInt(max(since.Add(-clockSlack).UnixMilli(), 0), 10)
		}
		for len(shards) > 0 {
			pages, err := d.rangeAll(ctx, shards, from)
			if err != nil {
				yield(Decision{}, err)
				return
			}
			var more []int
			for i, shard := range shards {
				for _, message := range pages[i] {
					from[shard] = "(" + message.ID
					if field, _ := message.Values["field"].(string); Field(field) != FieldDecision {
						continue
					}
					transition, err := readTransition(shard, message)
					if err != nil {
						yield(Decision{}, err)
						return
					}
					if !transition.Decision.At.Before(since) && !yield(*transition.Decision, nil) {
						return
					}
				}
				if len(pages[i]) == pageSize {
					more = append(more, shard)
				}
			}
			shards = more
		}
	}
}

func (d *Directory) rangeAll(ctx context.Context, shards []int, from map[int]string) ([][]redis.XMessage, error) {
	commands := make([]*redis.XMessageSliceCmd, len(shards))
	_, err := d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, shard := range shards {
			commands[i] = p.XRangeN(ctx, d.names.transitions(shard), from[shard], "+", pageSize)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the transitions: %w", err)
	}
	pages := make([][]redis.XMessage, len(shards))
	for i, c := range commands {
		pages[i] = c.Val()
	}
	return pages, nil
}

// Reach is the time since when the transitions of all these shards are whole, or
// of all: what is older was trimmed, or was before the shard began, also after it
// was emptied or restored. It is zero where a shard doesn't say, because no
// starter ever wrote it.
func (d *Directory) Reach(ctx context.Context, shards ...int) (time.Time, error) {
	if len(shards) == 0 {
		for shard := range Shards {
			shards = append(shards, shard)
		}
	}
	commands := make([]*redis.SliceCmd, len(shards))
	_, err := d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, shard := range shards {
			commands[i] = p.HMGet(ctx, d.names.meta(shard), "began", "trimmed")
		}
		return nil
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("read how far the transitions reach: %w", err)
	}
	var reach int64
	for _, c := range commands {
		began, _ := c.Val()[0].(string)
		trimmed, _ := c.Val()[1].(string)
		if began == "" {
			return time.Time{}, nil
		}
		reach = max(reach, number(began), int64(streamID(trimmed)[0]))
	}
	return time.UnixMilli(reach).UTC(), nil
}

// InOrder sorts decisions by time, and leaves each in once.
func InOrder(all []Decision) []Decision {
	slices.SortStableFunc(all, func(a, b Decision) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		if c := a.Device.Compare(b.Device); c != 0 {
			return c
		}
		return int(a.Seq - b.Seq)
	})
	return slices.CompactFunc(all, func(a, b Decision) bool { return a.Device == b.Device && a.ID() == b.ID() })
}

// Gaps counts the decisions that are missing between those of the same device: a
// case numbers them. They have to be in order, and all that there are.
func Gaps(all []Decision) int {
	type place struct{ epoch, seq int64 }
	last := map[device.Key]place{}
	missing := 0
	for _, d := range all {
		before, there := last[d.Device]
		// A workflow that begins anew begins its numbers anew.
		if there && d.Seq > before.seq+1 && d.Epoch == before.epoch {
			missing += int(d.Seq - before.seq - 1)
		}
		last[d.Device] = place{d.Epoch, d.Seq}
	}
	return missing
}

package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// NodeWriter isolates whole nodes, gives them back, and reads them live.
type NodeWriter interface {
	Put(context.Context, isolation.Put) (isolation.Written, error)
	Lift(context.Context, isolation.Lift) (isolation.Taken, error)
	Look(context.Context, *kube.MarkWriter, isolation.Look) (isolation.Looked, error)
}

// Nodes holds the activities of the workflows that isolate whole nodes.
type Nodes struct {
	Writer NodeWriter
	Marks  *kube.MarkWriter
	// Cases tells of a device that has no mark whether its case confirmed a fault.
	Cases StateReader
	// Enforce tells whether anything is changed. In mode observe nothing is, even if a
	// workflow still asks for it because it recorded its mode before the worker's changed.
	Enforce func() bool
	// Permits takes permits back of nodes that are given back.
	Permits *Permits
	Logger  *slog.Logger
}

// LookNode reads a node, its Lease, the marks of its devices, and the cases of those that
// have none.
func (n *Nodes) LookNode(ctx context.Context, l isolation.Look) (isolation.Looked, error) {
	looked, err := n.Writer.Look(ctx, n.Marks, l)
	if err != nil || !looked.Exists {
		return looked, err
	}
	marked := map[string]bool{}
	for _, f := range looked.Faulty {
		marked[f.Device] = true
	}
	for _, f := range l.Devices {
		if marked[f.Device] {
			continue
		}
		found, faulty, err := n.confirmed(ctx, f.Device, l.Node)
		if err != nil {
			return isolation.Looked{}, err
		}
		if faulty {
			looked.Faulty = append(looked.Faulty, found)
		}
	}
	return looked, nil
}

// confirmed asks a device's case whether it has confirmed a fault that isn't over.
func (n *Nodes) confirmed(ctx context.Context, name, node string) (isolation.Faulty, bool, error) {
	key, err := device.ParseKey(name)
	if err != nil {
		return isolation.Faulty{}, false, nil // what isn't a device isn't faulty
	}
	state, err := n.Cases.State(ctx, key)
	switch {
	case errors.Is(err, devicewf.ErrNoCase):
		return isolation.Faulty{}, false, nil
	case err != nil:
		return isolation.Faulty{}, false, fmt.Errorf("ask the case of %s, on node %s, whether it confirmed a fault: %w", key, node, err)
	}
	c := state.Case
	out := c.Phase == quarantine.PhaseQuarantined || c.Phase == quarantine.PhaseRetired
	if !out || !c.Confirmed || c.Node != "" && c.Node != node {
		return isolation.Faulty{}, false, nil
	}
	return isolation.Faulty{
		Device: name, Epoch: c.Epoch, Reason: string(c.Reason.Code),
		Unmarkable: key.Path() == device.PathPlugin || c.Mark.State == quarantine.MarkAdvisory,
	}, true, nil
}

// IsolateNode keeps a whole node out, if there is a permit for all its devices.
func (n *Nodes) IsolateNode(ctx context.Context, p isolation.Put) (isolation.Written, error) {
	if !p.Observe && !n.Enforce() {
		return isolation.Written{Outcome: isolation.Refused, Epoch: p.Epoch, Way: p.Way, Detail: "this worker runs in mode observe and isolates nothing"}, nil
	}
	written, err := n.Writer.Put(ctx, p)
	n.log(ctx, "node isolated", p.Node, p.Epoch, written.Outcome, written.Detail, err)
	return written, err
}

// ReleaseNode takes Sickbay's own taint or cordon off a node.
func (n *Nodes) ReleaseNode(ctx context.Context, l isolation.Lift) (isolation.Taken, error) {
	if !n.Enforce() {
		return isolation.Taken{Outcome: isolation.Refused, Epoch: l.Epoch, Detail: "this worker runs in mode observe and removes nothing"}, nil
	}
	taken, err := n.Writer.Lift(ctx, l)
	if err == nil && taken.Outcome == isolation.Lifted && n.Permits != nil {
		n.Permits.returnWhole(ctx, l)
	}
	n.log(ctx, "node given back", l.Node, l.Epoch, taken.Outcome, taken.Detail, err)
	return taken, err
}

func (n *Nodes) log(ctx context.Context, what, node string, epoch int64, outcome isolation.Outcome, detail string, err error) {
	level, attributes := slog.LevelInfo, []slog.Attr{slog.String("node", node), slog.Int64("epoch", epoch), slog.String("outcome", string(outcome))}
	if err != nil {
		what, level = "node call failed", slog.LevelWarn
		attributes = append(attributes, slog.Any("error", err))
	} else if detail != "" {
		level = slog.LevelWarn
		attributes = append(attributes, slog.String("detail", detail))
	}
	n.Logger.LogAttrs(ctx, level, what, attributes...)
}

// NodePermit implements kube.NodePermits: it asks for all devices of a node at once, behind
// all single devices.
func (p *Permits) NodePermit(ctx context.Context, put isolation.Put) (kube.Permit, error) {
	node := budget.Scope{Kind: budget.Node, Name: put.Node}
	ask := budget.Ask{
		Device: budget.Whole(put.Node), Epoch: put.Epoch, Purpose: budget.Mark, Since: put.Since,
		Cost: max(put.Levels.Total, 1), Costs: put.Levels.Classes, Sizes: []budget.Size{{Scope: node, Eligible: put.Levels.Total}},
	}
	if put.Observe {
		ask.Purpose = budget.Observe
	}
	for _, class := range put.Levels.Classes {
		ask.Scopes = append(ask.Scopes, class.Scope)
	}
	ask.Scopes = append(ask.Scopes, node)
	answer, err := p.ask(ctx, ask)
	if err != nil {
		return kube.Permit{}, err
	}
	if !answer.Granted {
		p.log.InfoContext(ctx, "no permit to isolate a node now", "node", put.Node, "epoch", put.Epoch, "why", answer.Why, "again", answer.Again.String())
	}
	return kube.Permit{Granted: answer.Granted, Why: answer.Why, Again: answer.Again}, nil
}

// returnWhole gives the permit of a node back. If that fails, the starters' next count does.
func (p *Permits) returnWhole(ctx context.Context, l isolation.Lift) {
	err := p.asker.Return(ctx, []budget.Permit{{Device: budget.Whole(l.Node), Epoch: l.Epoch, Purpose: budget.Mark}})
	if err != nil {
		p.log.WarnContext(ctx, "a permit isn't given back; it is when a starter next counts the marks", "node", l.Node, "error", err)
	}
}

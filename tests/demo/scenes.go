package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/simnode"
)

// The nodes on which something happens.
const (
	faulty   = "node-0"
	blipping = "node-1"
	silent   = "node-2"
)

// fallen is the message of an Xid 79 as NVIDIA's DRA driver writes it
// (kubernetes-sigs/dra-driver-nvidia-gpu, device_health.go).
const fallen = "critical XID 79 reported by NVML"

// scene is one thing that happens, and what has to come of it.
type scene struct {
	// happens is what is about to be done, outcome what is then to be seen.
	happens, outcome string
	do               func(context.Context) error
	// seen tells why the outcome isn't there yet, from what `sickbay devices`
	// says. within is how long it may take.
	seen   func(listing.Listing) error
	within time.Duration
}

// scenes is the plot: an Xid 79, a blip, a driver that stays silent.
func (d *demo) scenes(ctx context.Context) ([]scene, error) {
	bad, err := d.deviceOf(ctx, jobName(faulty, 0))
	if err != nil {
		return nil, err
	}
	return []scene{
		{
			happens: fmt.Sprintf("%s reports %q", bad, fallen),
			do: func(ctx context.Context) error {
				_, err := d.nodes.Set(ctx, faulty, bad.Device, corev1.ResourceHealthStatusUnhealthy, fallen)
				return err
			},
			outcome: "its case is open and its mark in force; the Pod that holds it is left alone",
			seen: func(l listing.Listing) error {
				return one(l, bad, quarantine.PhaseQuarantined, quarantine.WaitingForHolder, quarantine.MarkInForce, jobName(faulty, 0))
			},
			within: 20 * time.Second,
		},
		{
			happens: "two more jobs ask for a device on " + faulty + ", which has two free ones",
			do: func(ctx context.Context) error {
				for i := range 2 {
					name := jobName(faulty, jobsPerNode+i)
					if err := d.makeJob(ctx, name, faulty); err != nil {
						return err
					}
					if _, err := d.nodes.AwaitPod(ctx, namespace, name, simnode.Running); err != nil {
						return err
					}
				}
				return nil
			},
			outcome: "they run, and not on " + bad.Device,
			seen: func(l listing.Listing) error {
				return one(l, bad, quarantine.PhaseQuarantined, quarantine.WaitingForHolder, quarantine.MarkInForce, jobName(faulty, 0))
			},
			within: 20 * time.Second,
		},
		{
			happens: "the driver of " + blipping + " says nothing for a moment",
			do: func(ctx context.Context) error {
				_, err := d.nodes.Silence(ctx, blipping)
				return err
			},
			outcome: "its devices in use are suspect, and nothing is done to them",
			seen:    suspects(blipping),
			within:  20 * time.Second,
		},
		{
			happens: "the driver of " + blipping + " is back",
			do: func(ctx context.Context) error {
				_, err := d.nodes.Speak(ctx, blipping)
				return err
			},
			outcome: "the cases are over; not one device was kept out",
			seen:    well(blipping),
			within:  45 * time.Second,
		},
		{
			happens: "the driver of " + silent + " falls silent, and stays so",
			do: func(ctx context.Context) error {
				_, err := d.nodes.Silence(ctx, silent)
				return err
			},
			outcome: "its devices in use are suspect",
			seen:    suspects(silent),
			within:  20 * time.Second,
		},
		{
			happens: "the grace window of " + silent + " passes",
			outcome: "still Unknown, so no new Pod gets them until the driver is back; no Pod was touched",
			seen:    restricted(silent),
			within:  60 * time.Second,
		},
		{
			happens: "the job on " + bad.Device + " ends",
			do:      func(ctx context.Context) error { return d.endJob(ctx, jobName(faulty, 0)) },
			outcome: "nobody has it, it has rested, and it stays out until it is proven",
			seen: func(l listing.Listing) error {
				return one(l, bad, quarantine.PhaseQuarantined, quarantine.WaitingForRecovery, quarantine.MarkInForce)
			},
			within: 60 * time.Second,
		},
	}, nil
}

// one wants a device in a phase, waiting for something, with a mark and holders.
func one(l listing.Listing, key device.Key, phase quarantine.Phase, waiting quarantine.Waiting, mark quarantine.MarkState, holders ...string) error {
	for _, d := range l.Devices {
		if d.Key != key {
			continue
		}
		switch {
		case d.Phase != phase || d.Waiting != waiting:
			return fmt.Errorf("%s is %q, waiting %q; want %s, %s", d.Name, d.Phase, d.Waiting, phase, waiting)
		case d.Mark == nil || d.Mark.State != string(mark) || d.Mark.Name == "":
			return fmt.Errorf("%s has mark %+v, want it %s", d.Name, d.Mark, mark)
		case len(d.Holders) != len(holders):
			return fmt.Errorf("%s has holders %v, want %v", d.Name, d.Holders, holders)
		}
		for i, holder := range holders {
			if d.Holders[i].Name != holder {
				return fmt.Errorf("%s has holders %v, want %v", d.Name, d.Holders, holders)
			}
		}
		return nil
	}
	return fmt.Errorf("%s isn't listed", key)
}

// suspects wants the devices in use on a node suspect and unmarked.
func suspects(node string) func(listing.Listing) error {
	return onNode(node, func(d listing.Device) error {
		held := len(d.Holders) > 0
		switch {
		case d.Mark != nil:
			return fmt.Errorf("%s has mark %s although it is only Unknown", d.Name, d.Mark.State)
		case held && d.Phase != quarantine.PhaseSuspect:
			return fmt.Errorf("%s is %q, want %s", d.Name, d.Phase, quarantine.PhaseSuspect)
		case !held && d.Phase != "":
			return fmt.Errorf("%s is %s although nobody reports on it", d.Name, d.Phase)
		}
		return nil
	})
}

// restricted wants the devices in use on a node marked, and still held.
func restricted(node string) func(listing.Listing) error {
	return onNode(node, func(d listing.Device) error {
		held := len(d.Holders) > 0
		switch {
		case !held && (d.Phase != "" || d.Mark != nil):
			return fmt.Errorf("%s is %s although nobody reports on it", d.Name, d.Phase)
		case held && (d.Phase != quarantine.PhaseRestricted || d.Waiting != quarantine.WaitingForHealth):
			return fmt.Errorf("%s is %q, waiting %q; want %s, %s", d.Name, d.Phase, d.Waiting, quarantine.PhaseRestricted, quarantine.WaitingForHealth)
		case held && (d.Mark == nil || d.Mark.State != string(quarantine.MarkInForce)):
			return fmt.Errorf("%s has mark %+v, want it %s", d.Name, d.Mark, quarantine.MarkInForce)
		}
		return nil
	})
}

// well wants the devices of a node without a case, and those in use Healthy.
func well(node string) func(listing.Listing) error {
	return onNode(node, func(d listing.Device) error {
		if d.Faulty() || d.Health == "" && len(d.Holders) > 0 {
			return fmt.Errorf("%s is %q with health %q and mark %+v; want no case and Healthy", d.Name, d.Phase, d.Health, d.Mark)
		}
		return nil
	})
}

// onNode asks about every device of a node, and wants the jobs on it to be there.
func onNode(node string, ask func(listing.Device) error) func(listing.Listing) error {
	return func(l listing.Listing) error {
		held := 0
		for _, d := range l.Devices {
			if d.Node != node {
				continue
			}
			held += len(d.Holders)
			if err := ask(d); err != nil {
				return err
			}
		}
		if held != jobsPerNode {
			return fmt.Errorf("%d jobs hold devices of %s, want %d", held, node, jobsPerNode)
		}
		return nil
	}
}

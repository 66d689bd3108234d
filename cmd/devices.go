package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/live"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
)

type devicesFlags struct {
	peopleFlags
	filter   listing.Filter
	order    listing.Order
	watch    bool
	counts   bool
	unmapped bool
	from     string
}

// What --from takes.
const (
	fromCluster   = "cluster"
	fromDirectory = "directory"
)

func newDevices(streams Streams) *cobra.Command {
	var flags devicesFlags
	command := &cobra.Command{
		Use:   "devices [DEVICE...]",
		Short: "Lists devices: what is reported, what was decided, what keeps them out",
		Long: `Lists the devices of the cluster, healthy ones too:

  DEVICE   driver/pool/device, or node|resource|ID for a device plugin's
  HEALTH   the worst that Pods report now; "-" where no Pod reports on it,
           NotListed where neither a slice nor a Pod names it, Unknown also
           where a Healthy can't be believed
  PHASE    where its case stands; "-" without a case
  WAITING  what the case waits for
  REASON   the reason code of the case; without one, why a Healthy can't be
           believed: NodeSilent and NodeNotReady (its node is out, by the word of
           the node controller and the kubelet), DriverAbsent (its slices are gone
           or incomplete), PluginAbsent (nothing of the resource is allocatable);
           Unmonitored, where the driver never reported any health on the node
  MARK     what keeps it out of new allocations: InForce, Observed (mode observe,
           nothing is made), Advisory (nothing to mark it with: a device plugin's
           device, or an API that isn't served), Refused, Changed …
  HOLDERS  the Pods that have it allocated
  SINCE    how long ago the device was first not good in its case

The last lines count the devices by phase. Health entries that can't be attributed
to one device are counted there too; --unmapped lists them instead of devices.

Filters take several values, by commas or by repetition, of which any lets a
device through; different filters all have to. In nodes, drivers, classes and
reasons * stands for any letters and ? for one. The phases are
` + strings.Join(listing.Phases(), ", ") + `
(without a case).

--class goes by DeviceClass. A device belongs to each class whose selectors it
meets, whether or not somebody holds it, and to those by which it is allocated
now. Of selectors, comparisons of device.driver and of string attributes joined
by && are judged, which is what drivers' own classes are made of. Of a class that
demands more, only devices are known that are allocated by it, and the command
says so. A device plugin's device has its resource as its class.

--from directory answers from the device directory, without a list of all Pods of
the cluster: the way for dashboards, scripts and fleets of many thousand devices.
It needs SICKBAY_REDIS_ADDRESSES, says how old it is where it isn't current, knows
no unmapped faults and takes no --class. Where the directory is away, the cluster answers, and the command says so.

By default the command reads ResourceSlices, ResourceClaims, DeviceClasses, Pods, Nodes
and DeviceTaintRules, and asks Temporal for the open cases. Without Temporal it
answers from the marks and says so. What it could not read, and what Sickbay itself
can't see now (no starter leads, or one that can't watch), is said on standard
error, above the answer.

-o wide and JSON have how old what is reported may be, apart from what it is:
CONFIRMED is how long ago at most node and driver stood behind it, or at least (≥)
where they don't any more, LAG by how much longer the driver's own word may be
behind (SICKBAY_REPORTING_DELAY).
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: `  sickbay devices --faulty --sort-by since
  sickbay devices --watch
  sickbay devices --phase Quarantined,Retired --node 'rack7-*'
  sickbay devices --reason 'Xid*' -o name
  sickbay devices --counts --class gpu.example.com
  sickbay devices --unmapped`,
		GroupID:           groupPeople,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: flags.completeDevices,
		RunE: func(cmd *cobra.Command, names []string) error {
			flags.filter.Names = names
			return runDevices(cmd.Context(), streams, flags)
		},
	}
	flags.add(command)
	set := command.Flags()
	set.BoolVarP(&flags.watch, "watch", "w", false, "go on showing what changes, until SIGINT")
	set.BoolVar(&flags.counts, "counts", false, "only count the devices by phase")
	set.BoolVar(&flags.unmapped, "unmapped", false, "list the health entries that lead to no one device, and aren't Healthy")
	set.StringVar(&flags.from, "from", fromCluster, "where to look: cluster, or directory")
	set.BoolVar(&flags.filter.Faulty, "faulty", false, "only devices with a case, a mark, or a report that isn't Healthy")
	set.StringSliceVar(&flags.filter.Nodes, "node", nil, "only devices on these nodes")
	set.StringSliceVar(&flags.filter.Drivers, "driver", nil, "only devices of these DRA drivers or device-plugin resources")
	set.StringSliceVar(&flags.filter.Phases, "phase", nil, "only devices in these phases")
	set.StringSliceVar(&flags.filter.Classes, "class", nil, "only devices of these DeviceClasses")
	set.StringSliceVar(&flags.filter.Reasons, "reason", nil, "only devices whose case has one of these reason codes; with --unmapped, entries with this WHY")
	set.StringVar(&flags.order.By, "sort-by", "name", strings.Join(listing.Orders(), ", ")+": the worst or oldest first")
	set.BoolVar(&flags.order.Reverse, "reverse", false, "sort the other way round")
	completeWords(command, "from", fromCluster, fromDirectory)
	completeWords(command, "sort-by", listing.Orders()...)
	completeFlag(command, "phase", completeList(func(context.Context) []string { return listing.Phases() }))
	completeFlag(command, "reason", completeList(reasonCodes))
	completeFlag(command, "node", completeList(flags.known(func(d listing.Device) []string { return []string{d.Node} })))
	completeFlag(command, "driver", completeList(flags.known(driverOf)))
	completeFlag(command, "class", completeList(flags.known(func(d listing.Device) []string { return d.Classes })))
	return command
}

// check names what doesn't fit together.
func (f *devicesFlags) check(format show.Format) error {
	tables := format == show.Table || format == show.Wide
	switch {
	case f.watch && (f.counts || f.unmapped):
		return errors.New("--watch shows devices, with their counts; leave --counts and --unmapped out")
	case f.from != fromCluster && f.from != fromDirectory:
		return fmt.Errorf("--from %q: want cluster or directory", f.from)
	case f.from == fromDirectory && f.watch:
		return errors.New("--watch follows the cluster; leave --from directory out")
	case f.from == fromDirectory && len(f.filter.Classes) > 0:
		return errors.New("--class goes by DeviceClass, which the directory knows only of devices that somebody holds; leave --from directory out")
	case f.from == fromDirectory && f.unmapped:
		return errors.New("--unmapped entries lead to no device, and the directory has devices only; leave --from directory out")
	case f.watch && !tables:
		return fmt.Errorf("--watch shows table or wide, not %s", format)
	case f.counts && f.unmapped:
		return errors.New("--counts and --unmapped are two answers; ask for one of them")
	case f.counts && format == show.Name:
		return errors.New("--counts has no names; want -o table, json or yaml")
	case f.unmapped && (len(f.filter.Phases) > 0 || len(f.filter.Classes) > 0):
		return errors.New("--unmapped can't be narrowed by phase or class: an entry that leads to no device has neither")
	}
	return errors.Join(f.filter.Check(), f.order.Check())
}

func runDevices(ctx context.Context, streams Streams, flags devicesFlags) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	if err := flags.check(format); err != nil {
		return &usageError{err}
	}
	from, err := flags.connect()
	if err != nil {
		return err
	}
	defer from.close()
	if flags.from == fromDirectory && from.directory == nil {
		return &usageError{errors.New("--from directory needs the device directory: set SICKBAY_REDIS_ADDRESSES")}
	}
	if flags.watch {
		return live.Run(ctx, live.Options{
			Clients: from.clients, Temporal: from.temporal, Namespace: from.namespace, Filter: flags.filter, Order: flags.order,
			Screen: show.NewScreen(streams.Out, format, colour, terminalSize(streams.Out)),
			Blind:  func(ctx context.Context) []string { return from.look(ctx)().blind },
		})
	}
	return listDevices(ctx, streams, flags, format, colour, from)
}

// listDevices answers once.
func listDevices(ctx context.Context, streams Streams, flags devicesFlags, format show.Format, colour bool, from *sources) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	whole, unknown, err := read(ctx, flags, from)
	if err != nil {
		return err
	}
	narrowed, missing := whole.Narrow(flags.filter)
	narrowed = narrowed.Sort(flags.order)
	lacking := warn(streams, narrowed.Blind, narrowed.Problems)
	print := show.Print
	switch {
	case flags.counts:
		print = show.PrintCounts
	case flags.unmapped:
		print = show.PrintUnmapped
	}
	if err := print(streams.Out, narrowed, format, colour); err != nil {
		return fmt.Errorf("print the listing: %w", err)
	}
	notes := narrowed.Notes
	if len(narrowed.Devices) == 0 && len(missing) == 0 && !flags.unmapped {
		notes = slices.Concat(notes, whole.Strange(flags.filter))
	}
	note(streams, notes)
	if len(missing) > 0 {
		if err := unknown(missing); flags.from != fromDirectory || lacking == nil {
			return err
		} else {
			// What an incomplete directory doesn't have may be there all the same.
			fmt.Fprintln(streams.Err, "sickbay:", err)
		}
	}
	return lacking
}

// read lists all devices from where the flags say; unknown says of names that
// aren't among them what may have been meant.
func read(ctx context.Context, flags devicesFlags, from *sources) (whole listing.Listing, unknown func(names []string) error, err error) {
	var instead []string
	if flags.from == fromDirectory {
		whole, err := listing.ReadDirectory(ctx, from.directory, from.clients.Delays, time.Now().UTC())
		if err == nil {
			whole.Blind = from.temporalSight(ctx)
			return whole, func(names []string) error {
				var errs []error
				for _, name := range names {
					errs = append(errs, whole.Unknown(name))
				}
				return errors.Join(errs...)
			}, nil
		}
		instead = append(instead, fmt.Sprintf("the device directory is away (%v); this answer is from the cluster, its marks and Temporal", err))
	}
	looked := from.look(ctx)
	cluster, err := listing.Read(ctx, from.clients)
	if err != nil {
		looked()
		return listing.Listing{}, nil, err
	}
	cases, away, problems := from.cases(ctx, nil)
	seen := looked()
	cluster.Problems = slices.Concat(instead, cluster.Problems, problems)
	cluster.Blind = seen.blind
	if len(instead) == 0 {
		cluster.Notes = append(cluster.Notes, seen.notes...)
	}
	return listing.Join(cluster, cases, time.Now().UTC()), func(names []string) error {
		return unknownNames(listing.NewSurvey(cluster), names, away)
	}, nil
}

// unknownNames says of each name what may have been meant.
func unknownNames(survey *listing.Survey, names []string, casesMissing bool) error {
	var errs []error
	for _, name := range names {
		key, err := survey.Resolve(name)
		if err == nil {
			err = survey.Unknown(key, casesMissing)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

package cmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/starter"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

// rebuildLimit bounds a whole rebuild.
const rebuildLimit = 10 * time.Minute

func newRebuild(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild",
		Short: "Rebuilds the device directory in Redis from cluster, marks and cases",
		Long: `Compares the device directory in Redis with the cluster, the marks and the open
cases, repairs what differs, and removes entries that nobody has any more. It
prints how many entries of each field

  COMPARED   were looked at
  MISSING    were not there, DIFFERENT said something else, NOBODYS belonged to
             nothing any more; all of these were repaired
  LEFT       changed meanwhile, or couldn't be told; whoever writes them is at it

Nobody has to run it: starter and workers rebuild the directory by themselves
when Redis comes back empty, new or with older data. It is for a directory that
they don't run for, and for whoever wants to know now. A starter that runs is
fenced off at first; within seconds it takes over again, and compares the rest.

Nothing is written but the directory. Without Temporal, cases that have a mark are
taken from the mark, and others are left as they are.
` + environmentHelp(config.Rebuild{}) + "\n" + exitCodesHelp,
		GroupID: groupPeople,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runRebuild(cmd.Context(), streams) },
	}
}

func runRebuild(ctx context.Context, streams Streams) error {
	var set config.Rebuild
	if err := config.Load(&set); err != nil {
		return err
	}
	catalogue, err := set.Reasons.Catalogue()
	if err != nil {
		return err
	}
	// What the clients log would break the answer; their errors are shown.
	silent := slog.New(slog.DiscardHandler)
	klog.SetSlogLogger(silent)
	cluster, err := connectKubernetes(set.Kubernetes, "sickbay-rebuild", nil)
	if err != nil {
		return err
	}
	temporal, err := connectTemporal(set.Temporal, "sickbay-rebuild", silent, nil)
	if err != nil {
		return err
	}
	defer temporal.Close()
	shown, closeDirectory, err := connectDirectory(set.Redis, "sickbay-rebuild", silent)
	if err != nil {
		return err
	}
	defer closeDirectory()

	ctx, cancel := context.WithTimeout(ctx, rebuildLimit)
	defer cancel()
	// Claimed before the cluster is read: nobody else writes what was seen later.
	held := make([]directory.Claim, directory.Shards)
	for shard := range held {
		if held[shard], err = shown.Claim(ctx, shard, directory.Claim{}, false); err != nil {
			return err
		}
	}
	clients := listing.Clients{Kubernetes: cluster.typed, Dynamic: cluster.untyped, Discovery: cluster.typed.Discovery(), Ours: oursIn(set.ProbePlace)}
	read, err := listing.Read(ctx, clients)
	if err != nil {
		return err
	}
	if len(read.Problems) > 0 {
		return fmt.Errorf("not everything could be read, and what wasn't would look as if it were gone; nothing was changed: %s", strings.Join(read.Problems, "; "))
	}
	nodes, err := listNodes(ctx, cluster.typed)
	if err != nil {
		return err
	}
	entries := starter.Levels(starter.Listed{Slices: read.Slices, Claims: read.Claims, Pods: read.Pods, Nodes: nodes}, catalogue)
	return rebuild(ctx, streams, shown, held,
		&directory.Reconciler{
			Directory: shown, Field: directory.FieldSeen, Held: held,
			Truth: directory.Entries(directory.FieldSeen, slices.Values(entries)),
		},
		&directory.Reconciler{
			Directory: shown, Field: directory.FieldCase, Held: held, Parallel: 8,
			Truth: newMarkedCases(workflow.NewClient(temporal, set.Temporal.TaskQueue), read.Marks),
		})
}

// rebuild compares field by field and says what was found.
func rebuild(ctx context.Context, streams Streams, shown *directory.Directory, held []directory.Claim, fields ...*directory.Reconciler) error {
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIELD\tCOMPARED\tMISSING\tDIFFERENT\tNOBODYS\tLEFT")
	left := 0
	for _, field := range fields {
		var all directory.Report
		for shard := range directory.Shards {
			report, err := field.Shard(ctx, shard)
			if err != nil {
				return err
			}
			if report.Fenced > 0 && field.Field == directory.FieldSeen {
				fmt.Fprintln(streams.Err, "sickbay: a starter that runs took the directory over, and compares what is seen by itself")
				break
			}
			if len(report.Lost) > 0 {
				return fmt.Errorf("shard %d was emptied meanwhile; run it again", shard)
			}
			if report.Settled() {
				if err := shown.Complete(ctx, shard, field.Field, held[shard].Identity); err != nil {
					return err
				}
			}
			all.Compared += report.Compared
			all.Added += report.Added
			all.Changed += report.Changed
			all.Removed += report.Removed
			left += report.Conflicts + report.Fenced + report.Unknown
			all.Unknown += report.Conflicts + report.Fenced + report.Unknown
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\n", field.Field, all.Compared, all.Added, all.Changed, all.Removed, all.Unknown)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print what was found: %w", err)
	}
	if left > 0 {
		fmt.Fprintf(streams.Err, "sickbay: %d fields were left as they are: they changed meanwhile, or Temporal or its workers didn't answer for them\n", left)
		return errPartial
	}
	return nil
}

func listNodes(ctx context.Context, client kubernetes.Interface) ([]*corev1.Node, error) {
	var nodes []*corev1.Node
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Nodes().List(ctx, o)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		trimmed, err := kube.TrimNode(object)
		if node, ok := trimmed.(*corev1.Node); ok {
			nodes = append(nodes, node)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	return nodes, nil
}

// markedCases are the open cases, and where no workflow answers for a marked
// device, what its mark says.
type markedCases struct {
	*activities.Cases
	marks map[device.Key]kube.Mark
}

func newMarkedCases(reader activities.CaseReader, marks []kube.Mark) *markedCases {
	c := &markedCases{Cases: &activities.Cases{Reader: &knownAway{reader, nil}}, marks: map[device.Key]kube.Mark{}}
	for _, mark := range marks {
		c.marks[mark.Device] = mark
	}
	return c
}

// Devices implements directory.Truth. That Temporal is away is no error here: a
// case that can't be asked for is left as it is.
func (c *markedCases) Devices(ctx context.Context, shard int) iter.Seq2[device.Key, error] {
	return func(yield func(device.Key, error) bool) {
		for key, err := range c.Cases.Devices(ctx, shard) {
			if err != nil {
				break
			}
			if !yield(key, nil) {
				return
			}
		}
		for key := range c.marks {
			if directory.ShardOf(key) == shard && !yield(key, nil) {
				return
			}
		}
	}
}

// Level implements directory.Truth.
func (c *markedCases) Level(ctx context.Context, key device.Key) (directory.Level, error) {
	level, err := c.Cases.Level(ctx, key)
	if mark, marked := c.marks[key]; marked && level.Case == nil {
		return directory.Level{Case: directory.CaseOfMark(key, mark.Node, mark.Found)}, nil
	}
	return level, err
}

// knownAway asks Temporal no more once it didn't answer a listing: each further
// question would only take its time to fail.
type knownAway struct {
	activities.CaseReader
	away error
}

func (k *knownAway) OpenDevices(ctx context.Context) iter.Seq2[device.Key, error] {
	return func(yield func(device.Key, error) bool) {
		if k.away != nil {
			yield(device.Key{}, k.away)
			return
		}
		for key, err := range k.CaseReader.OpenDevices(ctx) {
			k.away = errors.Join(k.away, err)
			if !yield(key, err) {
				return
			}
		}
	}
}

func (k *knownAway) State(ctx context.Context, key device.Key) (workflow.State, error) {
	if k.away != nil {
		return workflow.State{}, k.away
	}
	return k.CaseReader.State(ctx, key)
}

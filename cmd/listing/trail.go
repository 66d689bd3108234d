package listing

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	workflowdevice "github.com/sickbay-dev/sickbay/workflows/device"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// historiesAtOnce bounds the histories that are read at once.
const historiesAtOnce = 8

// The sources of a trail.
const (
	FromDirectory = "directory"
	FromTemporal  = "temporal"
)

// Trail is what was decided in a span of time. Its JSON form is part of the
// command line's interface.
type Trail struct {
	At    time.Time `json:"at"`
	Since time.Time `json:"since"`
	// Sources are where it was read.
	Sources   []string   `json:"sources"`
	Decisions []Decision `json:"decisions"`
	Problems  []string   `json:"problems,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
}

// Decision is one decision, with its device's name.
type Decision struct {
	Name string `json:"name"`
	directory.Decision
}

// TrailFilter narrows a trail. Empty fields let everything through; of several
// values of one field, any lets a decision through. Nodes, Drivers, Kinds and
// Actors may hold the wildcards of path.Match.
type TrailFilter struct {
	Devices                       []device.Key
	Nodes, Drivers, Kinds, Actors []string
}

// Check names what is wrong with a filter.
func (f TrailFilter) Check() error {
	for flag, values := range map[string][]string{"node": f.Nodes, "driver": f.Drivers, "kind": f.Kinds, "actor": f.Actors} {
		for _, v := range values {
			if _, err := path.Match(v, ""); err != nil {
				return fmt.Errorf("--%s %q isn't a pattern: want a name, in which * stands for any letters and ? for one", flag, v)
			}
		}
	}
	return nil
}

// Admits tells whether a decision is let through.
func (f TrailFilter) Admits(d directory.Decision) bool {
	driver := reading.DriverOf(d.Device)
	if d.Incident != "" {
		scope, err := incident.ParseScope(d.Incident)
		if driver = scope.Driver; err != nil {
			driver = ""
		}
	}
	if d.Budget != "" {
		driver = ""
		switch scope, err := budget.ParseScope(d.Budget); {
		case err != nil:
		case scope.Kind == budget.Driver:
			driver = scope.Name
		case scope.Kind == budget.Pool:
			driver, _, _ = strings.Cut(scope.Name, "/")
		}
	}
	if d.Whole {
		driver = ""
	}
	return (len(f.Devices) == 0 || slices.Contains(f.Devices, d.Device)) &&
		matches(f.Nodes, d.Node) && matches(f.Drivers, driver) &&
		matches(f.Kinds, string(d.Kind)) && matches(f.Actors, d.Actor)
}

// Narrow names and orders decisions, and leaves what the filter lets through.
func (f TrailFilter) Narrow(all []directory.Decision) []Decision {
	narrowed := []Decision{}
	for _, d := range directory.InOrder(slices.Clone(all)) {
		if f.Admits(d) {
			narrowed = append(narrowed, Decision{Name: d.Device.String(), Decision: d})
		}
	}
	return narrowed
}

// TrailSources are what a trail is read from. Directory may be nil.
type TrailSources struct {
	Directory *directory.Directory
	Temporal  client.Client
	Namespace string
}

// ReadTrail reads what was decided since a time: from the directory, and where
// there is none, or where it doesn't tell everything, from Temporal's histories.
func (s TrailSources) ReadTrail(ctx context.Context, since, now time.Time, f TrailFilter) Trail {
	trail := Trail{At: now, Since: since, Sources: []string{}}
	var all []directory.Decision
	whole := false
	if s.Directory != nil {
		var note, problem string
		all, whole, note, problem = s.readDirectory(ctx, since, f)
		if problem != "" {
			trail.Problems = append(trail.Problems, problem)
		} else {
			trail.Sources = append(trail.Sources, FromDirectory)
		}
		if note != "" {
			trail.Notes = append(trail.Notes, note)
		}
	}
	if !whole {
		found, problem := ReadDecisions(ctx, s.Temporal, s.Namespace, since, f.Devices)
		all = merge(all, found)
		if problem != "" {
			trail.Problems = append(trail.Problems, problem)
		}
		trail.Sources = append(trail.Sources, FromTemporal)
	}
	trail.Decisions = f.Narrow(all)
	return trail
}

func (s TrailSources) readDirectory(ctx context.Context, since time.Time, f TrailFilter) (all []directory.Decision, whole bool, note, problem string) {
	var shards []int
	for _, key := range f.Devices {
		if shard := directory.ShardOf(key); !slices.Contains(shards, shard) {
			shards = append(shards, shard)
		}
	}
	reach, err := s.Directory.Reach(ctx, shards...)
	if err == nil {
		for decision, failed := range s.Directory.Decisions(ctx, since, shards...) {
			if err = failed; failed != nil {
				break
			}
			all = append(all, decision)
		}
	}
	if err != nil {
		return all, false, "", fmt.Sprintf("the directory is away, so Temporal's histories tell what was decided: %v", err)
	}
	if missing := directory.Gaps(directory.InOrder(slices.Clone(all))); missing > 0 {
		return all, false, fmt.Sprintf("%d decisions are missing in the directory; those that are still there were taken from Temporal's histories", missing), ""
	}
	// That it reaches less far than is asked for is its nature, and nothing to say.
	return all, !reach.IsZero() && !reach.After(since), "", ""
}

// merge adds what was found in another source. Of two that are the same decision,
// the one that knows its node stays.
func merge(all, found []directory.Decision) []directory.Decision {
	type name struct {
		key device.Key
		id  string
	}
	at := map[name]int{}
	merged := slices.Clone(all)
	for i, d := range merged {
		at[name{d.Device, d.ID()}] = i
	}
	for _, d := range found {
		i, there := at[name{d.Device, d.ID()}]
		switch {
		case !there:
			merged = append(merged, d)
		case merged[i].Node == "":
			merged[i].Node = d.Node
		}
	}
	return merged
}

// ReadDecisions reads the decisions since a time from the histories of all cases
// that were open since then, or of those of some devices. The problem says what
// is missing.
func ReadDecisions(ctx context.Context, temporal client.Client, namespace string, since time.Time, devices []device.Key) (all []directory.Decision, problem string) {
	var only []string
	if len(devices) > 0 {
		only = Workflows(devices...)
	}
	runs, err := listRuns(ctx, temporal, namespace, since, only)
	if err != nil {
		return nil, fmt.Sprintf("Temporal is away, so what its histories tell is missing: %v", err)
	}
	var mu sync.Mutex
	var reading sync.WaitGroup
	turns := make(chan struct{}, historiesAtOnce)
	unread, first := 0, ""
	for _, run := range runs {
		turns <- struct{}{}
		reading.Go(func() {
			defer func() { <-turns }()
			id, node := run.GetExecution().GetWorkflowId(), attributesOf(run).node
			var announced []quarantine.Announce
			var many []incidentwf.Announce
			var budgets []permitswf.Announce
			var wholes []nodewf.Announce
			var err error
			switch run.GetType().GetName() {
			case incidentwf.WorkflowType:
				many, err = readAnnounced[incidentwf.Announce](ctx, temporal, id, run.GetExecution().GetRunId(), incidentwf.ActivityAnnounce)
			case permitswf.WorkflowType:
				budgets, err = readAnnounced[permitswf.Announce](ctx, temporal, id, run.GetExecution().GetRunId(), permitswf.ActivityAnnounce)
			case nodewf.WorkflowType:
				wholes, err = readAnnounced[nodewf.Announce](ctx, temporal, id, run.GetExecution().GetRunId(), nodewf.ActivityAnnounce)
			default:
				announced, err = readCase(ctx, temporal, id, run.GetExecution().GetRunId())
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if unread++; first == "" {
					first = err.Error()
				}
			}
			for _, a := range budgets {
				for _, n := range a.Notices {
					if !n.At.Before(since) {
						all = append(all, directory.BudgetDecision(n))
					}
				}
			}
			for _, a := range many {
				for _, n := range a.Notices {
					if !n.At.Before(since) {
						all = append(all, directory.IncidentDecision(a.Scope, a.Since, n))
					}
				}
			}
			for _, a := range wholes {
				for _, n := range a.Notices {
					if !n.At.Before(since) {
						all = append(all, directory.NodeDecision(a.Node, a.Epoch, n))
					}
				}
			}
			for _, a := range announced {
				for _, n := range a.Notices {
					if !n.At.Before(since) {
						d := directory.Decision{Device: a.Device, Node: node, Notice: n}
						if d.Node == "" {
							d.Node = d.Device.Node
						}
						all = append(all, d)
					}
				}
			}
		})
	}
	reading.Wait()
	if unread > 0 {
		problem = fmt.Sprintf("the trail isn't complete: %d of %d histories couldn't be read: %s", unread, len(runs), first)
	}
	return directory.InOrder(all), problem
}

// listRuns lists the runs of cases, and unless only some are wanted of incidents and of
// budgets, and of whole nodes, that were open at some time since.
func listRuns(ctx context.Context, temporal client.Client, namespace string, since time.Time, only []string) ([]*workflow.WorkflowExecutionInfo, error) {
	types := fmt.Sprintf("WorkflowType = '%s'", workflowdevice.WorkflowType)
	if only == nil {
		types += fmt.Sprintf(" OR WorkflowType = '%s' OR WorkflowType = '%s' OR WorkflowType = '%s'", incidentwf.WorkflowType, permitswf.WorkflowType, nodewf.WorkflowType)
	}
	var all []*workflow.WorkflowExecutionInfo
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: namespace, PageSize: 1000,
		Query: fmt.Sprintf("(%s) AND (ExecutionStatus = 'Running' OR CloseTime >= '%s')%s",
			types, since.UTC().Format(time.RFC3339Nano), among(only)),
	}
	for {
		page, err := temporal.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list the workflows of namespace %s: %w", namespace, err)
		}
		all = append(all, page.GetExecutions()...)
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return all, nil
		}
	}
}

// ParseSince reads since when a trail is wanted: a time (RFC 3339), a day, or how
// long ago, where d is a day.
func ParseSince(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return at.UTC(), nil
		}
	}
	ago, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found && err != nil {
		if ago, err = time.ParseDuration(days + "h"); err == nil {
			ago *= 24
		}
	}
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("--since %q: want how long ago, like 90m, 24h or 7d, or a time like %s or a day (UTC)", text, now.UTC().Format(time.RFC3339))
	}
	return now.UTC().Add(-ago), nil
}

// Package workers registers the workflows and activities and runs them. It is
// the process that decides and acts; the starter is the one that observes.
package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	"github.com/sickbay-dev/sickbay/workflows/burst"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// discoveryTTL is how long an answer about what the cluster serves is believed.
const discoveryTTL = time.Minute

// Options is what a worker needs. All fields are required but StopTimeout,
// ProbeNamespace, Poker and Directory.
type Options struct {
	Temporal   client.Client
	Namespace  string
	TaskQueue  string
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Discovery  discovery.DiscoveryInterface
	// Policy is what holds now. It is asked at each decision, so that a change reaches
	// open cases.
	Policy     func() *policy.InForce
	Catalogue  *reason.Catalogue
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Tracer makes the spans of activities and decisions. The zero value makes none.
	Tracer telemetry.Tracer
	// Incidents tells whether a device's Unknown is a part of something larger; nil
	// asks the incident workflows.
	Incidents activities.Restrictions
	// Directory is where cases are shown; nil is nowhere.
	Directory *directory.Directory
	// ProbeNamespace is where devices are proven healthy; nothing in it holds a device.
	// Empty is nowhere.
	ProbeNamespace string
	// Poker asks watch Pods' kubelets for readings of now; nil asks nobody.
	Poker *kube.Poker
	// StopTimeout is how long running activities may take to finish once the
	// worker is told to stop. Zero means 25 s, which fits into a Pod's grace
	// period of 40 s.
	StopTimeout time.Duration
}

// Worker is the worker process.
type Worker struct {
	options Options
	audit   *activities.Audit
	marks   *kube.MarkWriter
	nodes   *kube.NodeWriter
	events  *activities.Events
	permits *activities.Permits
	// shown and trail are what writes the directory, or nil.
	shown *directory.Writer
	trail *directory.Trail
}

// New checks the options and prepares a worker.
func New(o Options) (*Worker, error) {
	if err := validate(o.Policy()); err != nil {
		return nil, err
	}
	if o.Incidents == nil {
		o.Incidents = activities.NewIncidents(incidentwf.NewClient(o.Temporal, o.TaskQueue), o.Logger)
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = 25 * time.Second
	}
	audit, err := activities.NewAudit(o.Logger, o.Catalogue, o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	events, err := activities.NewEvents(o.Kubernetes.CoreV1(), devicewf.NewClient(o.Temporal, o.TaskQueue), o.Logger, o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	w := &Worker{
		options: o,
		audit:   audit,
		events:  events,
		marks:   kube.NewMarkWriter(o.Dynamic, kube.NewDiscovery(o.Discovery, discoveryTTL)),
	}
	w.permits = activities.NewPermits(permitswf.NewClient(o.Temporal, o.TaskQueue), standing{w}, "worker", o.Logger)
	w.marks.Permitted(w.permits)
	w.nodes = kube.NewNodeWriter(o.Kubernetes, w.permits)
	return w, w.setUpDirectory()
}

// validate names everything that is wrong with what holds where no policy says anything.
func validate(held *policy.InForce) error {
	var errs []error
	for what, err := range map[string]error{
		"policy": held.For("", nil).Validate(), "policy of incidents": held.Incidents().Validate(), "limits": held.Limits().Validate(), "policy of nodes": held.Isolation().Validate(),
	} {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	return errors.Join(errs...)
}

// policyOf is what holds now for a device of these classes.
func (w *Worker) policyOf(key device.Key, classes []string) quarantine.Policy {
	return w.options.Policy().For(reading.DriverOf(key), classes)
}

// enforces tells whether marks are made of a device of these classes now.
func (w *Worker) enforces(key device.Key, classes []string) bool {
	return w.policyOf(key, classes).Mode == quarantine.ModeEnforce
}

// Run works until the context ends, then finishes what it has begun. Temporal
// being away at start is waited out.
func (w *Worker) Run(ctx context.Context) error {
	o := w.options
	searchable, err := w.searchAttributes(ctx)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	sdk := worker.New(o.Temporal, o.TaskQueue, worker.Options{
		WorkerStopTimeout: o.StopTimeout,
		OnFatalError:      func(err error) { failed <- err },
	})
	sdk.RegisterWorkflowWithOptions(
		devicewf.New(func(key device.Key, classes []string) devicewf.Knobs {
			return devicewf.Knobs{Policy: w.policyOf(key, classes), SearchAttributes: searchable}
		}, o.Catalogue.Meaning).Run,
		workflow.RegisterOptions{Name: devicewf.WorkflowType})
	sdk.RegisterWorkflowWithOptions(
		incidentwf.New(func() incidentwf.Knobs {
			return incidentwf.Knobs{Policy: o.Policy().Incidents(), SearchAttributes: searchable}
		}).Run,
		workflow.RegisterOptions{Name: incidentwf.WorkflowType})
	sdk.RegisterWorkflowWithOptions(
		nodewf.New(func() nodewf.Knobs {
			return nodewf.Knobs{Policy: o.Policy().Isolation(), SearchAttributes: searchable}
		}).Run,
		workflow.RegisterOptions{Name: nodewf.WorkflowType})
	sdk.RegisterWorkflowWithOptions(
		permitswf.New(func() permitswf.Knobs { return permitswf.Knobs{Limits: o.Policy().Limits()} }).Run,
		workflow.RegisterOptions{Name: permitswf.WorkflowType})
	sdk.RegisterWorkflowWithOptions(burst.Run, workflow.RegisterOptions{Name: burst.WorkflowType})
	w.registerActivities(sdk)
	if err := sdk.Start(); err != nil {
		return fmt.Errorf("start worker on task queue %s: %w", o.TaskQueue, err)
	}
	o.Logger.Info("worker runs", "taskQueue", o.TaskQueue, "mode", string(o.Policy().For("", nil).Mode), "catalogue", o.Catalogue.Version(), "searchAttributes", searchable)
	defer w.tell(ctx)()
	select {
	case <-ctx.Done():
		o.Logger.Info("worker stops", "grace", o.StopTimeout.String())
		sdk.Stop()
		return nil
	case err := <-failed:
		return fmt.Errorf("worker on task queue %s: %w", o.TaskQueue, err)
	}
}

func (w *Worker) registerActivities(sdk worker.Worker) {
	o := w.options
	k := &activities.Kubernetes{
		Marks:   w.marks,
		Reader:  kube.NewLiveReader(o.Kubernetes, w.marks, o.Catalogue).Poking(o.Poker).Sparing(device.Ours(o.ProbeNamespace)),
		Enforce: w.enforces,
		Permits: w.permits,
		Logger:  o.Logger,
	}
	sdk.RegisterActivityWithOptions(traced(w, noting(w, k.PutMark)), activity.RegisterOptions{Name: devicewf.ActivityPutMark})
	sdk.RegisterActivityWithOptions(traced(w, noting(w, k.LiftMark)), activity.RegisterOptions{Name: devicewf.ActivityLiftMark})
	sdk.RegisterActivityWithOptions(traced(w, noting(w, k.Look)), activity.RegisterOptions{Name: devicewf.ActivityLook})
	w.registerRecovery(sdk)
	restriction := &activities.Restriction{Logger: o.Logger, Incidents: &activities.Upgrades{
		Lister: permitswf.NewClient(o.Temporal, o.TaskQueue), Then: o.Incidents,
		Grace: func(key device.Key) time.Duration { return w.policyOf(key, nil).Grace },
	}}
	sdk.RegisterActivityWithOptions(traced(w, noting(w, restriction.AskRestriction)), activity.RegisterOptions{Name: devicewf.ActivityAskRestriction})
	sdk.RegisterActivityWithOptions(traced(w, noting(w, w.permits.AskPermit)), activity.RegisterOptions{Name: devicewf.ActivityAskPermit})
	sdk.RegisterActivityWithOptions(traced(w, noting(w, w.permits.AskReturn)), activity.RegisterOptions{Name: devicewf.ActivityAskReturn})
	ahead := &activities.Ahead{Marks: w.marks, Policy: w.policyOf, Logger: o.Logger}
	sdk.RegisterActivityWithOptions(ahead.MarkAhead, activity.RegisterOptions{Name: burst.ActivityMark})
	sdk.RegisterActivityWithOptions(w.announce, activity.RegisterOptions{Name: devicewf.ActivityAnnounce})
	sdk.RegisterActivityWithOptions(w.announceBudget, activity.RegisterOptions{Name: permitswf.ActivityAnnounce})
	w.registerNodes(sdk)
	sdk.RegisterActivityWithOptions(w.announceIncident, activity.RegisterOptions{Name: incidentwf.ActivityAnnounce})
}

// searchAttributes tells whether the namespace has Sickbay's search attributes.
// Without them cases run all the same and can't be searched by phase or node.
// While Temporal is away or has no such namespace it asks again, until the context
// ends.
func (w *Worker) searchAttributes(ctx context.Context) (bool, error) {
	o := w.options
	pause := time.Second
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		answer, err := o.Temporal.OperatorService().ListSearchAttributes(attempt, &operatorservice.ListSearchAttributesRequest{Namespace: o.Namespace})
		cancel()
		if err == nil {
			missing := devicewf.MissingAttributes(answer.GetCustomAttributes())
			if len(missing) > 0 {
				o.Logger.Warn("the namespace lacks search attributes; cases can't be searched by them until sickbay setup temporal has run and workers start anew",
					"namespace", o.Namespace, "missing", missing)
			}
			return len(missing) == 0, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if !devicewf.Retryable(err) {
			return false, fmt.Errorf("ask for the search attributes of namespace %s: %w", o.Namespace, err)
		}
		o.Logger.Warn("temporal can't be asked for the search attributes; trying again", "pause", pause.String(), "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		case <-timer.C:
		}
		pause = min(2*pause, 15*time.Second)
	}
}

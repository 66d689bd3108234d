package listing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	device "github.com/sickbay-dev/sickbay/workflows/device"
)

const (
	// queriesAtOnce bounds the queries under way; each costs a worker a task.
	queriesAtOnce = 8
	// queryLimit bounds one query, listLimit one listing.
	queryLimit = 3 * time.Second
	listLimit  = 5 * time.Second
)

// Case is an open case as Temporal tells of it.
type Case struct {
	Workflow string
	// Run is the ID of the workflow's present run.
	Run string
	// State is what the workflow answered; nil where no worker did. The rest is
	// then what its search attributes say.
	State  *device.State
	Phase  quarantine.Phase
	Reason string
	Node   string
	Epoch  int64
}

// CaseReader reads the open cases, again and again if need be.
type CaseReader struct {
	temporal  client.Client
	namespace string
	// budget bounds the queries of one Read; zero is no bound.
	budget int
	// only are the workflows to ask for; nil is all.
	only []string

	known map[string]answer
}

// answer is what a run of a workflow last said, and when.
type answer struct {
	run   string
	shown attributes
	state device.State
	at    time.Time
}

// attributes are a workflow's search attributes. When one changed, what was
// answered before is old.
type attributes struct {
	phase, reason, node, epoch string
}

// NewCaseReader returns a reader that asks at most budget workflows for their
// state in one Read, those first that changed, then those not asked for longest;
// of the others the last answer is given. Zero asks all.
func NewCaseReader(temporal client.Client, namespace string, budget int) *CaseReader {
	return &CaseReader{temporal: temporal, namespace: namespace, budget: budget, known: map[string]answer{}}
}

// Only makes the reader ask for the cases of these workflows alone.
func (r *CaseReader) Only(workflows ...string) *CaseReader {
	r.only = workflows
	return r
}

// Read lists the open cases. Problems say what is missing; they come with
// whatever could be read. away tells that Temporal didn't even list the cases.
func (r *CaseReader) Read(ctx context.Context) (cases []Case, away bool, problems []string) {
	executions, err := r.list(ctx)
	if err != nil {
		return nil, true, []string{fmt.Sprintf("Temporal is away, so phases come from the marks alone: %v", err)}
	}
	open := map[string]bool{}
	for _, execution := range executions {
		open[execution.GetExecution().GetWorkflowId()] = true
	}
	for id := range r.known {
		if !open[id] {
			delete(r.known, id)
		}
	}
	problems = r.ask(ctx, executions)
	for _, execution := range executions {
		cases = append(cases, r.caseOf(execution))
	}
	return cases, false, problems
}

func (r *CaseReader) list(ctx context.Context) ([]*workflow.WorkflowExecutionInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	var all []*workflow.WorkflowExecutionInfo
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: r.namespace,
		Query:     fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'%s", device.WorkflowType, among(r.only)),
		PageSize:  1000,
	}
	for {
		page, err := r.temporal.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list the open device workflows of namespace %s: %w", r.namespace, err)
		}
		all = append(all, page.GetExecutions()...)
		if len(page.GetNextPageToken()) == 0 {
			return all, nil
		}
		request.NextPageToken = page.GetNextPageToken()
	}
}

// among narrows a visibility query to workflows.
func among(workflows []string) string {
	if workflows == nil {
		return ""
	}
	quoted := make([]string, len(workflows))
	for i, id := range workflows {
		quoted[i] = quote(id)
	}
	return " AND WorkflowId IN (" + strings.Join(quoted, ", ") + ")"
}

// quote writes a text as a string of the visibility query's SQL. The IDs of
// device plugins may be anything.
func quote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// ask queries those workflows whose answer is wanted most, and says which did
// not answer. When nobody answers at all, the rest isn't asked: whoever doesn't
// answer for one doesn't for the others either, and each wait costs seconds.
func (r *CaseReader) ask(ctx context.Context, executions []*workflow.WorkflowExecutionInfo) []string {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var problems []string
	var queries sync.WaitGroup
	slots := make(chan struct{}, queriesAtOnce)
	for _, execution := range r.wanted(executions) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		queries.Go(func() {
			defer func() { <-slots }()
			state, err := r.query(ctx, execution)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r.known[execution.GetExecution().GetWorkflowId()] = answer{
					run: execution.GetExecution().GetRunId(), shown: attributesOf(execution), state: state, at: time.Now(),
				}
			case ctx.Err() != nil:
				// Given up already, with a reason.
			case answered(err):
				problems = append(problems, fmt.Sprintf("one case shows what it last wrote down: %v", err))
			default:
				problems = append(problems, fmt.Sprintf("no worker answers, so cases show what they last wrote down: %v", err))
				stop()
			}
		})
	}
	queries.Wait()
	slices.Sort(problems)
	return problems
}

// answered tells that somebody did answer, and it is this one workflow that
// can't.
func answered(err error) bool {
	var failed *serviceerror.QueryFailed
	var gone *serviceerror.NotFound
	return errors.As(err, &failed) || errors.As(err, &gone)
}

// wanted orders the executions by how much an answer is wanted, within the budget.
func (r *CaseReader) wanted(executions []*workflow.WorkflowExecutionInfo) []*workflow.WorkflowExecutionInfo {
	asked := func(e *workflow.WorkflowExecutionInfo) int64 {
		last, ok := r.known[e.GetExecution().GetWorkflowId()]
		if !ok || last.run != e.GetExecution().GetRunId() || last.shown != attributesOf(e) {
			return 0
		}
		return last.at.UnixNano()
	}
	wanted := slices.Clone(executions)
	slices.SortStableFunc(wanted, func(a, b *workflow.WorkflowExecutionInfo) int { return cmp.Compare(asked(a), asked(b)) })
	if r.budget > 0 && len(wanted) > r.budget {
		wanted = wanted[:r.budget]
	}
	return wanted
}

func (r *CaseReader) query(ctx context.Context, execution *workflow.WorkflowExecutionInfo) (device.State, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	id := execution.GetExecution().GetWorkflowId()
	value, err := r.temporal.QueryWorkflow(ctx, id, "", device.QueryCase)
	if err != nil {
		return device.State{}, fmt.Errorf("query workflow %s: %w", id, err)
	}
	var state device.State
	if err := value.Get(&state); err != nil {
		return device.State{}, fmt.Errorf("read the state of workflow %s: %w", id, err)
	}
	return state, nil
}

func (r *CaseReader) caseOf(execution *workflow.WorkflowExecutionInfo) Case {
	id := execution.GetExecution().GetWorkflowId()
	shown := attributesOf(execution)
	// An epoch that isn't a number was written by nobody; zero is shown as none.
	epoch, _ := strconv.ParseInt(shown.epoch, 10, 64)
	c := Case{Workflow: id, Run: execution.GetExecution().GetRunId(), Phase: quarantine.Phase(shown.phase), Reason: shown.reason, Node: shown.node, Epoch: epoch}
	if last, ok := r.known[id]; ok {
		state := last.state
		c.State = &state
	}
	return c
}

func attributesOf(execution *workflow.WorkflowExecutionInfo) attributes {
	fields := execution.GetSearchAttributes().GetIndexedFields()
	text := func(key temporal.SearchAttributeKeyKeyword) string {
		var value string
		payload, ok := fields[key.GetName()]
		if !ok {
			return ""
		}
		if err := converter.GetDefaultDataConverter().FromPayload(payload, &value); err != nil {
			return ""
		}
		return value
	}
	return attributes{
		phase:  text(device.AttributePhase),
		reason: text(device.AttributeReason),
		node:   text(device.AttributeNode),
		epoch:  text(device.AttributeEpoch),
	}
}

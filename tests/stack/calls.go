package stack

// This file sums up what Sickbay's own processes asked of a stack's API server, for a
// comparison of all stacks' calls with the rights that are shipped.

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CallsVariable names a folder. Each stack with Kubernetes writes into it when it
// stops, as a file of JSON, what Sickbay's processes asked of its API server.
const CallsVariable = "SICKBAY_STACK_CALLS"

// Kind is a kind of call.
type Kind struct {
	// User is who called, Agent with which program: "sickbay-worker" of
	// "sickbay-worker/v1.2.3".
	User, Agent string
	// Group to Namespace are what it was about, as RBAC tells it.
	Verb, Group, Resource, Subresource, Namespace string
	// Code is the HTTP status of the answer.
	Code int
	// DryRun changes nothing whatever the answer.
	DryRun bool `json:",omitempty"`
}

// Counted is how often a kind of call was made at one stack.
type Counted struct {
	Kind
	Count int
	// Message is what one refusal said.
	Message string `json:",omitempty"`
}

// Ours tells whether a process of Sickbay made it: by its account or by the name that
// its program gives itself.
func (k Kind) Ours() bool {
	return strings.HasPrefix(k.User, "system:serviceaccount:sickbay:") || k.Agent == "sickbay-starter" || k.Agent == "sickbay-worker"
}

// writeCalls writes the summary, if it is wanted.
func (s *Stack) writeCalls() error {
	folder := os.Getenv(CallsVariable)
	if folder == "" || s.opts.Kubernetes == "" || s.opts.Provokes {
		return nil
	}
	log, err := os.Open(s.AuditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil // the API server never came up
	}
	if err != nil {
		return fmt.Errorf("sum up the calls: %w", err)
	}
	defer log.Close()
	counted, err := countCalls(log, s.starting(APIServer))
	if err != nil {
		return fmt.Errorf("sum up the calls in %s: %w", s.AuditLog(), err)
	}
	content, err := json.MarshalIndent(counted, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write the calls: %w", err)
	}
	file, err := os.CreateTemp(folder, s.opts.Kubernetes+"-*.json")
	if err != nil {
		return fmt.Errorf("write the calls: %w", err)
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// ReadCalls reads what the stacks wrote into folders, how often each kind of call was
// made over all of them.
func ReadCalls(folders ...string) ([]Counted, error) {
	sum := map[Kind]Counted{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			content, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			var counted []Counted
			if err := json.Unmarshal(content, &counted); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			for _, c := range counted {
				add(sum, c)
			}
		}
	}
	return sorted(sum), nil
}

// starting tells whether a part was starting at some time.
func (s *Stack) starting(name string) func(at time.Time) bool {
	s.mu.Lock()
	p := s.parts[name]
	s.mu.Unlock()
	var starts []span
	if p != nil {
		p.mu.Lock()
		starts = slices.Clone(p.starts)
		p.mu.Unlock()
	}
	return func(at time.Time) bool {
		return slices.ContainsFunc(starts, func(s span) bool { return !at.Before(s.from) && !at.After(s.to) })
	}
}

// countCalls counts our calls of an audit log. A line that is half written, because
// the API server was killed over it, doesn't count; nor does a refusal while the API
// server was starting, when it answers and doesn't know the roles yet.
func countCalls(log io.Reader, starting func(at time.Time) bool) ([]Counted, error) {
	sum := map[Kind]Counted{}
	lines := bufio.NewReaderSize(log, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		// Most calls are others'.
		if bytes.Contains(line, []byte("system:serviceaccount:sickbay:")) || bytes.Contains(line, []byte(`"userAgent":"sickbay-`)) {
			c, at, ours := countedOf(line)
			if ours && !(c.Code == http.StatusForbidden && starting(at)) {
				add(sum, c)
			}
		}
		if errors.Is(err, io.EOF) {
			return sorted(sum), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// countedOf reads a line of an audit log; false for what isn't about an object, or
// not ours.
func countedOf(line []byte) (c Counted, at time.Time, ours bool) {
	var event struct {
		RequestReceivedTimestamp time.Time

		Verb           string
		RequestURI     string
		User           struct{ Username string }
		UserAgent      string
		ObjectRef      *Call
		ResponseStatus struct {
			Code    int
			Message string
		}
	}
	if json.Unmarshal(line, &event) != nil || event.ObjectRef == nil {
		return Counted{}, time.Time{}, false
	}
	agent, _, _ := strings.Cut(event.UserAgent, "/")
	kind := Kind{
		User: event.User.Username, Agent: agent, Verb: event.Verb,
		Group: event.ObjectRef.APIGroup, Resource: event.ObjectRef.Resource, Subresource: event.ObjectRef.Subresource,
		Namespace: event.ObjectRef.Namespace, Code: event.ResponseStatus.Code, DryRun: dryRun(event.RequestURI),
	}
	return Counted{Kind: kind, Count: 1, Message: event.ResponseStatus.Message}, event.RequestReceivedTimestamp, kind.Ours()
}

func add(sum map[Kind]Counted, c Counted) {
	before := sum[c.Kind]
	sum[c.Kind] = Counted{Kind: c.Kind, Count: before.Count + c.Count, Message: cmp.Or(before.Message, c.Message)}
}

func sorted(sum map[Kind]Counted) []Counted {
	counted := make([]Counted, 0, len(sum))
	for _, c := range sum {
		counted = append(counted, c)
	}
	slices.SortFunc(counted, func(a, b Counted) int { return cmp.Compare(fmt.Sprint(a.Kind), fmt.Sprint(b.Kind)) })
	return counted
}

package stack

// This file reads the API server's audit log: who called what.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
)

// Call is one request about an object, as the audit log has it (Event of
// audit.k8s.io/v1).
type Call struct {
	Verb        string
	APIGroup    string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	// Code is the HTTP status of the answer, Message what a refusal says.
	Code    int
	Message string
	// DryRun changes nothing whatever the answer.
	DryRun bool
}

// Writes tells whether the call asks for a change. A review of rights is created, and
// kept nowhere.
func (c Call) Writes() bool {
	if c.DryRun || c.APIGroup == "authorization.k8s.io" {
		return false
	}
	switch c.Verb {
	case "get", "list", "watch":
		return false
	}
	return true
}

func (c Call) String() string {
	resource := c.Resource
	if c.Subresource != "" {
		resource += "/" + c.Subresource
	}
	return fmt.Sprintf("%s %s.%s %s/%s", c.Verb, resource, c.APIGroup, c.Namespace, c.Name)
}

// Calls are the requests that a user made about objects, the oldest first.
func (s *Stack) Calls(user string) ([]Call, error) {
	log, err := os.Open(s.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	defer log.Close()
	var calls []Call
	events := json.NewDecoder(log)
	for {
		var event struct {
			Verb           string
			RequestURI     string
			User           struct{ Username string }
			ObjectRef      *Call // nil for what isn't about an object
			ResponseStatus struct {
				Code    int
				Message string
			}
		}
		err := events.Decode(&event)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return calls, nil // the last line may be half written
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if event.User.Username != user || event.ObjectRef == nil {
			continue
		}
		call := *event.ObjectRef
		call.Verb, call.Code, call.Message = event.Verb, event.ResponseStatus.Code, event.ResponseStatus.Message
		call.DryRun = dryRun(event.RequestURI)
		calls = append(calls, call)
	}
}

// dryRun tells whether a request asks for no more than what would be.
func dryRun(uri string) bool {
	parsed, err := url.Parse(uri)
	return err == nil && parsed.Query().Has("dryRun")
}

package stack

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The summary has our processes' calls and nobody else's, once for each kind, and
// nothing that the API server wrote only half, or refused before it knew the roles.
func TestOurCallsAreSummedUp(t *testing.T) {
	const (
		worker = `"user":{"username":"system:serviceaccount:sickbay:sickbay-worker"},"userAgent":"sickbay-worker/v1"`
		pods   = `"verb":"list","requestURI":"/api/v1/pods?limit=500","objectRef":{"resource":"pods"}`
		dryRun = `"verb":"create","requestURI":"/apis/resource.k8s.io/v1/devicetaintrules?dryRun=All","objectRef":{"apiGroup":"resource.k8s.io","resource":"devicetaintrules","name":"x"}`
	)
	log := strings.Join([]string{
		`{` + worker + `,` + pods + `,"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-30T06:00:00.000000Z"}`,
		`{` + worker + `,` + pods + `,"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-30T06:00:09.000000Z"}`,
		`{` + worker + `,` + pods + `,"responseStatus":{"code":403,"message":"no role"},"requestReceivedTimestamp":"2026-11-30T06:00:10.500000Z"}`,
		`{` + worker + `,` + pods + `,"responseSta`,
		`{` + worker + `,` + pods + `,"responseStatus":{"code":403,"message":"no right"},"requestReceivedTimestamp":"2026-11-30T06:00:20.000000Z"}`,
		`{` + worker + `,` + dryRun + `,"responseStatus":{"code":403,"message":"no mark"},"requestReceivedTimestamp":"2026-11-30T06:00:21.000000Z"}`,
		`{` + worker + `,"verb":"get","requestURI":"/version","responseStatus":{"code":200}}`,
		`{"user":{"username":"admin"},"userAgent":"kubectl/v1",` + pods + `,"responseStatus":{"code":200}}`,
		`{"user":{"username":"admin"},"userAgent":"sickbay-devices/v1",` + pods + `,"responseStatus":{"code":200}}`,
		`{"user":{"username":"admin"},"userAgent":"sickbay-starter/v1",` + pods + `,"responseStatus":{"code":200}}`,
	}, "\n")
	began := time.Date(2026, 11, 30, 6, 0, 10, 0, time.UTC)
	got, err := countCalls(strings.NewReader(log), func(at time.Time) bool {
		return !at.Before(began) && at.Before(began.Add(time.Second))
	})
	if err != nil {
		t.Fatal(err)
	}
	const account = "system:serviceaccount:sickbay:sickbay-worker"
	list := Kind{User: account, Agent: "sickbay-worker", Verb: "list", Resource: "pods", Code: 200}
	refused := list
	refused.Code = 403
	want := []Counted{
		{Kind: Kind{User: "admin", Agent: "sickbay-starter", Verb: "list", Resource: "pods", Code: 200}, Count: 1},
		{Kind: Kind{User: account, Agent: "sickbay-worker", Verb: "create", Group: "resource.k8s.io", Resource: "devicetaintrules", Code: 403, DryRun: true}, Count: 1, Message: "no mark"},
		{Kind: list, Count: 2},
		{Kind: refused, Count: 1, Message: "no right"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

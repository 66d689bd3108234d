package listing

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// O7: that nobody watches is said, and never for a clock that is wrong.
func TestThatNoStarterLeadsIsToldByALeaseThatStandsStill(t *testing.T) {
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		seconds, at := int32(8), metav1.NewMicroTime(renewed)
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sickbay", Name: "sickbay-starter"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at},
		}
	}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		first  *coordinationv1.Lease
		second *coordinationv1.Lease // what it is when it is read again
		err    error
		want   string
	}{
		"a starter leads":                     {first: lease("a", ago(time.Second))},
		"none has renewed it for minutes":     {lease("a", ago(5*time.Minute)), lease("a", ago(5*time.Minute)), nil, "no starter leads since 2026-11-02 09:55:00 UTC, when Lease sickbay/sickbay-starter was last renewed"},
		"the last one gave it up":             {first: lease("", ago(time.Minute)), want: "no starter leads since 2026-11-02 09:59:00 UTC, when the last one gave Lease sickbay/sickbay-starter up"},
		"its starter's clock is an hour late": {first: lease("a", ago(time.Hour)), second: lease("a", ago(time.Hour-time.Second))},
		"ours is an hour late":                {first: lease("a", ago(-time.Hour)), second: lease("a", ago(-time.Hour-time.Second))},
		"ours is late, and none leads":        {lease("a", ago(-time.Hour)), lease("a", ago(-time.Hour)), nil, "no starter leads since"},
		"another one takes over":              {first: lease("a", ago(time.Minute)), second: lease("b", ago(0))},
		"it can't be read again":              {first: lease("a", ago(time.Minute)), err: errors.New("away")},
	} {
		t.Run(name, func(t *testing.T) {
			said := silent(tc.first, now, func() (*coordinationv1.Lease, error) {
				if tc.second == nil && tc.err == nil {
					t.Error("it was read again")
					return tc.first, nil
				}
				return tc.second, tc.err
			})
			if !strings.HasPrefix(said, tc.want) || (said == "") != (tc.want == "") {
				t.Errorf("said %q, want %q", said, tc.want)
			}
		})
	}
}

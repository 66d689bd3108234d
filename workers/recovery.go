package workers

import (
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// registerRecovery registers what proves devices healthy.
func (w *Worker) registerRecovery(sdk worker.Worker) {
	o := w.options
	r := &activities.Recovery{
		Attempts: kube.NewAttempts(o.Kubernetes, o.ProbeNamespace, w.marks, o.Catalogue),
		Settings: func(key device.Key, classes []string) policy.ProbeSettings {
			return o.Policy().Probing(reading.DriverOf(key), classes)
		},
		Enforce: w.enforces,
		Logger:  o.Logger,
	}
	sdk.RegisterActivityWithOptions(traced(w, noting(w, r.Tend)), activity.RegisterOptions{Name: devicewf.ActivityTend})
	sdk.RegisterActivityWithOptions(traced(w, noting(w, r.CleanUp)), activity.RegisterOptions{Name: devicewf.ActivityCleanUp})
}

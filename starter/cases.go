package starter

import (
	"context"
	"errors"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Cases is where the starter delivers what it sees: the device workflows.
type Cases interface {
	// Open delivers an event to the device's case, and starts one if there is none.
	Open(ctx context.Context, key device.Key, event quarantine.Event, traceparent string) error
	// Tell delivers an event to the device's case only if there is one.
	Tell(ctx context.Context, key device.Key, event quarantine.Event, traceparent string) error
	// Running tells whether the device has an open case.
	Running(ctx context.Context, key device.Key) (bool, error)
}

// Answers says what the errors of Cases mean.
type Answers struct {
	// NoCase is wrapped by what Tell returns for a device without an open case.
	NoCase error
	// Retryable tells whether sending again may help.
	Retryable func(error) bool
}

func (a Answers) validate() error {
	if a.NoCase == nil || a.Retryable == nil {
		return errors.New("answers: NoCase and Retryable are both needed to tell errors apart")
	}
	return nil
}

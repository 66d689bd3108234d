package cmd

import (
	"errors"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
)

// Exit codes, part of the command line's interface.
const (
	// ExitOK: done, or ended as asked by SIGTERM or SIGINT.
	ExitOK = 0
	// ExitFailure: something failed that may work another time.
	ExitFailure = 1
	// ExitUsage: wrong arguments or configuration; trying again won't help.
	ExitUsage = 2
	// ExitPartial: an answer was given, but not everything could be read. What is
	// missing was said on standard error.
	ExitPartial = 3
	// ExitNotFound: there is no such device or Pod, or the Pod has no devices.
	ExitNotFound = 4
)

const exitCodesHelp = `Exit codes:
  0  done, or ended as asked by SIGTERM or SIGINT
  1  something failed that may work another time
  2  wrong arguments or configuration
  3  an answer was given, but a source of it was away (standard error says which)
  4  there is no such device or Pod, or the Pod has no devices
`

// errUsage is wrapped by errors about arguments.
var errUsage = errors.New("wrong usage")

// errPartial is returned after an answer that lacks something.
var errPartial = errors.New("not everything could be read")

// usageError marks an error as one of the arguments without another word in it.
type usageError struct{ error }

func (e *usageError) Unwrap() []error { return []error{e.error, errUsage} }

func exitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errUsage), errors.Is(err, config.ErrConfig), errors.Is(err, device.ErrKey), errors.Is(err, policy.ErrPolicy):
		return ExitUsage
	case errors.Is(err, errPartial):
		return ExitPartial
	case errors.Is(err, listing.ErrNotFound):
		return ExitNotFound
	}
	return ExitFailure
}

package device

import (
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// SignalPermit tells a case that is held that there is a permit for its mark now.
const SignalPermit = "permit"

// PermitSignal is what that signal carries.
type PermitSignal struct {
	Epoch int64 `json:"epoch"`
}

// Offer tells a device's case, from another workflow, that there is a permit for its
// mark. It fails where no workflow of the device runs.
func Offer(ctx workflow.Context, key device.Key, epoch int64) workflow.Future {
	return workflow.SignalExternalWorkflow(ctx, ID(key), "", SignalPermit, PermitSignal{epoch})
}

func decodePermit(_ *runner, raw converter.RawValue) quarantine.Event {
	var signal PermitSignal
	if err := json.Unmarshal(raw.Payload().GetData(), &signal); err != nil {
		return quarantine.Message{Verb: SignalPermit, Malformed: fmt.Sprintf("the payload can't be read: %v", err)}
	}
	return quarantine.PermitOffered(signal)
}

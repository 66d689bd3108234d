package quarantine

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Gate is one of the proofs that a device passes, in this order and in one attempt,
// before it is given back.
type Gate string

const (
	// GateEvidence: the kubelet, asked for it, calls the device Healthy on a claim of
	// ours. Nobody reports on a device that nobody holds, so the gate obtains it.
	GateEvidence Gate = "Evidence"
	// GateProbe: a program on that device finds nothing wrong with it.
	GateProbe Gate = "Probe"
	// GateCanary: a small load runs on that device for a while, and it stays healthy.
	GateCanary Gate = "Canary"
	// GateStability: the device stays healthy, on fresh evidence, for a while.
	GateStability Gate = "Stability"
	// GateReason: what the case was opened for is closed: by the gates, or by the word
	// of an operator where the catalogue asks for one.
	GateReason Gate = "Reason"
	// GateReturn: it is the device's turn; not all come back at once.
	GateReturn Gate = "Return"
)

// Gates lists all gates in their order.
var Gates = [...]Gate{GateEvidence, GateProbe, GateCanary, GateStability, GateReason, GateReturn}

// Verdict is what came of a gate.
type Verdict string

const (
	// VerdictPassed: the device may go on to the next one.
	VerdictPassed Verdict = "Passed"
	// VerdictFailed: the device didn't pass; the attempt counts.
	VerdictFailed Verdict = "Failed"
	// VerdictUnsure: the gate couldn't be tried, and nothing was found out about the
	// device: the attempt doesn't count.
	VerdictUnsure Verdict = "Unsure"
)

// GateResult is what came of a gate, and on what evidence.
type GateResult struct {
	Gate     Gate      `json:"gate"`
	Verdict  Verdict   `json:"verdict"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	Evidence string    `json:"evidence,omitempty"`
}

// Recovery is the attempt under way.
type Recovery struct {
	// Token is the attempt's own: with the epoch it fences everything that is made for
	// it. Unix milliseconds, above that of every earlier attempt of the device.
	Token int64     `json:"token"`
	Began time.Time `json:"began"`
	// Gate is the one that is tried now, since GateBegan and until Deadline.
	Gate      Gate      `json:"gate"`
	GateBegan time.Time `json:"gateBegan"`
	Deadline  time.Time `json:"deadline,omitzero"`
	// Results are those of the gates before it.
	Results []GateResult `json:"results,omitempty"`
	// Claim is ours on the device, Pod the one that holds it there and is reported on.
	Claim string        `json:"claim,omitempty"`
	Pod   device.PodRef `json:"pod,omitzero"`
	// Health is what the driver said last on our claim, at HealthAt, when the kubelet had
	// been asked for it. It is Unknown where the kubelet didn't answer.
	Health   device.Health `json:"health,omitempty"`
	HealthAt time.Time     `json:"healthAt,omitzero"`
	Message  string        `json:"message,omitempty"`
	// GoodAt is the last time that it was found healthy and fresh, and Stable for how
	// long it has been so in the stability window: gaps don't count.
	GoodAt time.Time     `json:"goodAt,omitzero"`
	Stable time.Duration `json:"stable,omitempty"`
	// Job is how the gate's program stands, Report what it says.
	Job    JobState `json:"job,omitempty"`
	Report string   `json:"report,omitempty"`
	// Trouble is why the gate can't be tried, Blocked the driver's taints that keep our
	// claim out.
	Trouble string   `json:"trouble,omitempty"`
	Blocked []string `json:"blocked,omitempty"`
	// TendAt is when to tend to it next, Tended the answer that is in.
	TendAt time.Time `json:"tendAt,omitzero"`
	Tended time.Time `json:"tended,omitzero"`
	// Asked is set while it is asked whether it is the device's turn, AskAt when it is
	// asked again, Wait why it isn't yet. Granted is set once it is.
	Asked   bool      `json:"asked,omitempty"`
	AskAt   time.Time `json:"askAt,omitzero"`
	Wait    string    `json:"wait,omitempty"`
	Granted bool      `json:"granted,omitempty"`
}

// JobState is how a gate's program stands.
type JobState string

const (
	// JobNone: there is none, yet.
	JobNone JobState = ""
	// JobStarting: it is there and doesn't run yet.
	JobStarting JobState = "Starting"
	JobRunning  JobState = "Running"
	// JobPassed and JobFailed: it ended, and what it said.
	JobPassed JobState = "Passed"
	JobFailed JobState = "Failed"
	// JobLost: it went without an end, e.g. evicted.
	JobLost JobState = "Lost"
)

// Attempted is what came of the last attempt that is over.
type Attempted struct {
	Attempt int        `json:"attempt"`
	Result  GateResult `json:"result"`
	// Counted is set if it used up one of the device's tries.
	Counted bool `json:"counted,omitempty"`
	// Passed are the gates that it passed.
	Passed []GateResult `json:"passed,omitempty"`
}

// Relapse is what a case remembers of the release before it.
type Relapse struct {
	// Count is how often in a row the device failed soon after it was given back.
	Count int `json:"count,omitempty"`
	// Epoch is that of the case before, ReleasedAt when that gave the device back.
	Epoch      int64     `json:"epoch,omitempty"`
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
	// FirstTry is set if its first attempt passed all gates at once.
	FirstTry bool `json:"firstTry,omitempty"`
}

// Tend asks for everything to be there that the attempt's present gate needs, and for
// how it stands: our claim on that device and no other, a Pod that holds it, and the
// gate's program. It may wait a little for news. It is answered by a Tended.
type Tend struct {
	Device   device.Key         `json:"device"`
	Node     string             `json:"node,omitempty"`
	Epoch    int64              `json:"epoch"`
	Attempt  int                `json:"attempt"`
	Token    int64              `json:"token"`
	Gate     Gate               `json:"gate"`
	Hardware device.Incarnation `json:"hardware,omitzero"`
	// Asked is when this was asked for.
	Asked time.Time `json:"asked"`
	// Deadline is the end of the gate's time: nothing that is made for it may run longer.
	Deadline time.Time `json:"deadline,omitzero"`
	// Health and Job are what is known: while neither changes the answer may wait a little.
	Health device.Health `json:"health,omitempty"`
	Job    JobState      `json:"job,omitempty"`
}

// Tended is the answer to a Tend.
type Tended struct {
	Token int64     `json:"token"`
	Gate  Gate      `json:"gate"`
	Asked time.Time `json:"asked"`
	// Failed says why nothing could be read or made. All else is empty then.
	Failed string `json:"failed,omitempty"`
	// Trouble is why the gate can't be tried although the API answers: a Pod that can't
	// be scheduled, an image that isn't there, a right that is missing.
	Trouble string `json:"trouble,omitempty"`
	// Blocked are the driver's taints on the device that our claim may not tolerate.
	Blocked []string `json:"blocked,omitempty"`
	// Elsewhere is set if our claim was given something else than this device, or more:
	// nothing that was found then says anything of it.
	Elsewhere string        `json:"elsewhere,omitempty"`
	Claim     string        `json:"claim,omitempty"`
	Pod       device.PodRef `json:"pod,omitzero"`
	// Reading is what the kubelet says of the device on our claim. It counts only where
	// it is Acknowledged.
	Reading *Reading `json:"reading,omitempty"`
	// NodeOut says why the node's word doesn't count, if it doesn't.
	NodeOut string   `json:"nodeOut,omitempty"`
	Job     JobState `json:"job,omitempty"`
	// Report is what the gate's program says, for people.
	Report string `json:"report,omitempty"`
}

// CleanUp asks for everything to be gone that was made for the device's attempts up to a
// token. It is answered by a Cleaned.
type CleanUp struct {
	Device device.Key `json:"device"`
	UpTo   int64      `json:"upTo"`
}

// Cleaned is the answer to a CleanUp.
type Cleaned struct {
	UpTo int64 `json:"upTo"`
	// Failed says what is still there, and why.
	Failed string `json:"failed,omitempty"`
}

// AskReturn asks whether it is the device's turn to be given back. It is answered by a
// ReturnAnswered.
type AskReturn struct {
	Device device.Key `json:"device"`
	Node   string     `json:"node,omitempty"`
	Epoch  int64      `json:"epoch"`
	Token  int64      `json:"token"`
	Around Around     `json:"around,omitzero"`
}

// ReturnAnswered is the answer to an AskReturn.
type ReturnAnswered struct {
	Token   int64 `json:"token"`
	Granted bool  `json:"granted"`
	// Again is when to ask again, Why says for people what is waited for.
	Again time.Duration `json:"again,omitempty"`
	Why   string        `json:"why,omitempty"`
}

func (Tend) command()      {}
func (CleanUp) command()   {}
func (AskReturn) command() {}

func (Tended) event()         {}
func (Cleaned) event()        {}
func (ReturnAnswered) event() {}

// Package operator is what the workflows have in common where an operator speaks to them:
// what a message carries, by signal and by update alike, and how it is taken in. Which
// messages there are, and when they are refused, belongs to each workflow.
package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"go.temporal.io/sdk/converter"
)

// Payload is a message's JSON: {"actor":"you@example.com","reason":"replaced the riser"},
// and "for":"4h" where the message takes a duration.
type Payload struct {
	Actor  string   `json:"actor"`
	Reason string   `json:"reason"`
	For    Duration `json:"for,omitempty"`
}

// Duration is a time.Duration written as Go writes it ("90m").
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("for %q: want a duration like 90m or 4h", text)
	}
	*d = Duration(parsed)
	return nil
}

// Whole is a whole number. Tools write a large one, an epoch, with an exponent
// (1.796065603037e+12), and it is taken so, too.
type Whole int64

// UnmarshalJSON implements json.Unmarshaler.
func (w *Whole) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseFloat(string(text), 64)
	if err != nil || number != math.Trunc(number) || math.Abs(number) >= 1<<53 {
		return fmt.Errorf("%s: want a whole number", text)
	}
	*w = Whole(number)
	return nil
}

// Decode reads a payload that was received raw. What can't be read is told and not
// dropped: malformed says why, and is empty for a payload that is in order.
func Decode(raw converter.RawValue) (payload Payload, malformed string) {
	return DecodeAs[Payload](raw)
}

// DecodeAs is Decode for a message that carries more than a Payload.
func DecodeAs[P any](raw converter.RawValue) (payload P, malformed string) {
	var none P
	if raw.Payload() == nil {
		return none, "the payload is missing"
	}
	// A field that is misspelt would be left out of what is asked for.
	decoder := json.NewDecoder(bytes.NewReader(raw.Payload().GetData()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&payload); err != nil {
		return none, fmt.Sprintf("the payload can't be read: %v", err)
	}
	return payload, ""
}

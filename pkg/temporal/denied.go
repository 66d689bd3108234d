package temporal

import (
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
)

// Right is what a caller has to be allowed in a namespace. The names are those of
// Temporal's own authorizer.
type Right string

// The rights that are used here.
const (
	RightRead  Right = "read"
	RightAdmin Right = "admin"
)

// DeniedError is a refusal for lack of rights.
type DeniedError struct {
	// Right is the one that is missing in the namespace. Empty: the server lets
	// nobody in who says what this caller said, whatever it asks for.
	Right Right
	// NotOffered tells that the server doesn't offer this to anybody.
	NotOffered bool
	// Err says what was asked for, and what the server answered.
	Err error
}

func (e *DeniedError) Error() string {
	if e.NotOffered {
		return fmt.Sprintf("%v; the server doesn't offer that", e.Err)
	}
	if e.Right == "" {
		return fmt.Sprintf("%v; the server lets this caller ask nothing at all", e.Err)
	}
	return fmt.Sprintf("%v; the caller lacks the right %s in that namespace", e.Err, e.Right)
}

func (e *DeniedError) Unwrap() error { return e.Err }

// denied is told as it is, marked if err is a refusal for lack of that right.
func denied(err error, right Right, told error) error {
	var refused *serviceerror.PermissionDenied
	if errors.As(err, &refused) {
		return &DeniedError{Right: right, Err: told}
	}
	return told
}

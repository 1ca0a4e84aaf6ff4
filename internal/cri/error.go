package cri

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is a CRI call that failed. status.Code sees through it to the code of
// the runtime, and errors.Is to the error of the caller's context when that is
// what ended the call.
type Error struct {
	// Call is the CRI method, for example "RunPodSandbox".
	Call string
	// Endpoint names the runtime.
	Endpoint string
	// Limit is the deadline that passed without an answer; 0 when the runtime
	// answered, could not be reached, or the caller ended the call.
	Limit time.Duration
	// Err is what gRPC reported or what is wrong with the answer.
	Err error

	ctxErr error // the caller's context error when that ended the call
}

// Error leaves out gRPC's framing, and names the runtime only where the runtime
// itself is at fault: the rest is about the container, and is shown to users.
func (e *Error) Error() string {
	cause := e.Err.Error()
	if s, ok := status.FromError(e.Err); ok {
		cause = s.Message()
	}
	var bad *badAnswer
	switch {
	case e.Limit > 0:
		return fmt.Sprintf("%s: no answer from runtime at %s within %s", e.Call, e.Endpoint, e.Limit)
	case e.ctxErr != nil:
		return fmt.Sprintf("%s: %s", e.Call, e.ctxErr)
	case errors.As(e.Err, &bad):
		return fmt.Sprintf("%s: runtime at %s answered %s", e.Call, e.Endpoint, bad.what)
	case status.Code(e.Err) == codes.Unavailable:
		return fmt.Sprintf("%s: runtime at %s is not reachable: %s", e.Call, e.Endpoint, cause)
	case status.Code(e.Err) == codes.Unimplemented:
		return fmt.Sprintf("%s: not implemented by runtime at %s", e.Call, e.Endpoint)
	}
	return fmt.Sprintf("%s: %s", e.Call, cause)
}

// Unwrap gives the cause and, when the caller ended the call, its context error.
func (e *Error) Unwrap() []error {
	if e.ctxErr != nil {
		return []error{e.Err, e.ctxErr}
	}
	return []error{e.Err}
}

// IsNotFound reports that the sandbox, container or image is unknown to the runtime.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// IsUnimplemented reports that the runtime does not know the call at all.
func IsUnimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }

// IsUnavailable reports that the runtime could not be reached or went away
// during the call, so that nobody knows whether it took effect.
func IsUnavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// IsDeadline reports that time ran out: that of the call, or that of a command
// given to ExecSync, which runtimes report in the same way.
func IsDeadline(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

// IsHung reports that the runtime did not answer within the deadline of the
// call. It may still be working on it.
func IsHung(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Limit > 0
}

// badAnswer is a success that no caller can work with.
type badAnswer struct{ what string }

func (b *badAnswer) Error() string { return "runtime answered " + b.what }

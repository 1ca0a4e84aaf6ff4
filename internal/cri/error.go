package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is the error of a CRI call that failed. status.Code returns the runtime's code for it. If the caller's context
// ended the call, errors.Is matches the context's error.
type Error struct {
	// Call is the CRI method, for example "RunPodSandbox".
	Call string
	// Endpoint names the runtime.
	Endpoint string
	// Limit is the deadline that passed without an answer. It is 0 if the runtime answered or could not be reached, or
	// if the caller ended the call.
	Limit time.Duration
	// Err is the error that gRPC reported, or the defect of the answer.
	Err error

	ctxErr error         // the caller's context error when that ended the call
	waited time.Duration // how long the call had taken when the caller's deadline passed
}

// Error omits gRPC's framing. It names the runtime only if the runtime itself is at fault: all other errors are about
// the container and are shown to users.
func (e *Error) Error() string {
	cause := e.Err.Error()
	if s, ok := status.FromError(e.Err); ok {
		cause = s.Message()
	}
	var bad *badAnswer
	switch {
	case e.Limit > 0, errors.Is(e.ctxErr, context.DeadlineExceeded):
		return fmt.Sprintf("%s: no answer from runtime at %s within %s", e.Call, e.Endpoint, cmp.Or(e.Limit, e.waited))
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

// Unwrap returns the cause and, if the caller ended the call, the error of the caller's context.
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

// IsUnavailable reports that the runtime could not be reached or that the connection broke during the call. It is
// unknown whether the call took effect.
func IsUnavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// IsDeadline reports that the call's deadline or the timeout of a command in ExecSync has passed. Runtimes report both
// in the same way.
func IsDeadline(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

// IsHung reports that the runtime did not answer within the deadline of the call. The runtime may still be working on
// the call.
func IsHung(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Limit > 0
}

// badAnswer is the error for a successful answer that is incomplete.
type badAnswer struct{ what string }

func (b *badAnswer) Error() string { return "runtime answered " + b.what }

package docker

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error returns the gRPC error for an error of the client. It returns nil for nil. An error that already has a code
// stays as it is.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(code(err), strings.TrimPrefix(err.Error(), "Error response from daemon: "))
}

// code returns the gRPC code of an error of the client. An Engine answers 500 to many mistakes of its callers, so these
// are Unknown, as containerd's are.
func code(err error) codes.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err), lost(err):
		return codes.Unavailable
	case errdefs.IsNotFound(err):
		return codes.NotFound
	case errdefs.IsConflict(err), errdefs.IsAlreadyExists(err):
		return codes.AlreadyExists
	case errdefs.IsInvalidArgument(err):
		return codes.InvalidArgument
	case errdefs.IsUnauthorized(err):
		return codes.Unauthenticated
	case errdefs.IsPermissionDenied(err):
		return codes.PermissionDenied
	case errdefs.IsNotImplemented(err):
		return codes.Unimplemented
	}
	return codes.Unknown
}

// lost reports whether the connection broke during a call. This happens when the Engine ends.
func lost(err error) bool {
	text := err.Error()
	return strings.HasSuffix(text, ": EOF") || strings.Contains(text, "unexpected EOF") ||
		strings.Contains(text, "connection reset by peer") || strings.Contains(text, "broken pipe")
}

// IsNotFound reports whether an error says that the Engine does not have the container or image.
func IsNotFound(err error) bool {
	return errdefs.IsNotFound(err) || status.Code(err) == codes.NotFound
}

var conflict = regexp.MustCompile(`is already in use by container "?([0-9a-f]+)"?`)

// NameHolder returns the ID of the container that already has the name of a new one. It reads the Engine's error, and
// is empty for another error.
func NameHolder(err error) string {
	if err == nil {
		return ""
	}
	if found := conflict.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return ""
}

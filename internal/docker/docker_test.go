package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestSocketOfEndpointRefusesOtherForms(t *testing.T) {
	for endpoint, want := range map[string]string{
		"docker://": DefaultSocket, "docker://unix://": DefaultSocket, "docker://unix:///run/d.sock": "/run/d.sock",
		"unix:///run/d.sock": "/run/d.sock",
	} {
		if got, err := SocketOf(endpoint); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", endpoint, got, err, want)
		}
	}
	for endpoint, want := range map[string]string{
		"docker://tcp://host:2375": `endpoint "docker://tcp://host:2375" of Docker: only unix sockets are supported; ` +
			`next: write docker://unix:///path`,
		"docker:///run/d.sock": `endpoint "docker:///run/d.sock" of Docker has no scheme; ` +
			`next: write docker://unix:///path`,
		"docker://unix://d.sock": `endpoint "docker://unix://d.sock" of Docker needs an absolute path; ` +
			`next: write docker://unix:///path`,
	} {
		if got, err := SocketOf(endpoint); err == nil || err.Error() != want {
			t.Errorf("%s: %q, %v, want %q", endpoint, got, err, want)
		}
	}
}

func TestErrorsHaveTheirGRPCCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want codes.Code
	}{
		{nil, codes.OK}, {fmt.Errorf("x: %w", errdefs.ErrNotFound), codes.NotFound},
		{errdefs.ErrConflict, codes.AlreadyExists}, {errdefs.ErrInvalidArgument, codes.InvalidArgument},
		{errdefs.ErrUnauthenticated, codes.Unauthenticated}, {errdefs.ErrInternal, codes.Unknown},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled}, {errors.New("error during connect: Get: EOF"), codes.Unavailable},
		{status.Error(codes.FailedPrecondition, "x"), codes.FailedPrecondition},
	} {
		if got := status.Code(Error(test.err)); got != test.want {
			t.Errorf("%v: %s, want %s", test.err, got, test.want)
		}
	}
}

// Without an Engine a call fails with Unavailable, which the agent takes for a runtime that restarts. The error names
// the socket.
func TestCallWithoutEngineIsUnavailable(t *testing.T) {
	dir, err := os.MkdirTemp("", "d") // short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(dir) }() // it is empty
	for _, socket := range []string{filepath.Join(dir, "d.sock"), filepath.Join(dir, strings.Repeat("x", 200))} {
		c, err := New("docker://unix://" + socket)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Negotiate(t.Context())
		if status.Code(err) != codes.Unavailable || len(socket) < 100 && !strings.Contains(err.Error(), socket) {
			t.Errorf("at %s: %v", socket, err)
		}
	}
}

func TestNameHolderIsTheContainerOfAConflict(t *testing.T) {
	const text = `Error response from daemon: Conflict. The container name "/a" is already in use by container ` +
		`"0123abcd". You have to remove (or rename) that container to be able to reuse that name.`
	if got := NameHolder(errors.New(text)); got != "0123abcd" {
		t.Errorf("holder %q", got)
	}
	if got := NameHolder(errors.New("other")); got != "" {
		t.Errorf("holder %q of another error", got)
	}
}

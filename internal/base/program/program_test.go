package program

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestRunReturnsOutputAndFailure(t *testing.T) {
	out, err := Run(t.Context(), time.Minute, "sh", "-c", "echo answer; echo reason >&2; exit 3")
	failed, ok := errors.AsType[*exec.ExitError](err)
	if !ok || failed.ExitCode() != 3 || string(out.Stdout) != "answer\n" || string(out.Stderr) != "reason\n" {
		t.Errorf("%q, %q, %v", out.Stdout, out.Stderr, err)
	}
}

func TestRunKillsAProgramThatHangs(t *testing.T) {
	_, err := Run(t.Context(), 50*time.Millisecond, "sh", "-c", "sleep 1000 & wait")
	if err == nil || err.Error() != "no answer in 50ms" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, time.Minute, "sleep", "1000"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestRunDropsOutputBeyondItsLimit(t *testing.T) {
	out, err := Run(t.Context(), time.Minute, "sh", "-c", "head -c 3000000 /dev/zero")
	if err != nil || len(out.Stdout) != maxOutput {
		t.Errorf("%d bytes, %v", len(out.Stdout), err)
	}
}

func TestRunNamesAProgramThatIsMissing(t *testing.T) {
	_, err := Run(t.Context(), time.Minute, "no-such-program")
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("got %v", err)
	}
}

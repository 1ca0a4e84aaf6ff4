package program

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/berth-run/berth/internal/base/sysmon"
)

const (
	// maxOutput is how many bytes of each output are kept.
	maxOutput = 1 << 20
	// drain is how long the output may stay open after the program's end, because a process it started still holds it.
	drain = time.Second
)

// Output is the output of a program.
type Output struct{ Stdout, Stderr []byte }

// Run runs a program and waits for its end. A program that takes longer than limit is killed with the processes that it
// started. The error of a program that failed is an *exec.ExitError; the output is returned too.
func Run(ctx context.Context, limit time.Duration, name string, args ...string) (Output, error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer in %s", limit))
	defer cancel()
	var stdout, stderr buffer
	cmd := exec.CommandContext(limited, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drain
	err := sysmon.Run(cmd)
	if err != nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // a process that the program left behind keeps the output open
	}
	return Output{stdout.kept, stderr.kept}, err
}

// buffer keeps the first maxOutput bytes, and drops the rest.
type buffer struct{ kept []byte }

func (b *buffer) Write(p []byte) (int, error) {
	room := maxOutput - len(b.kept)
	b.kept = append(b.kept, p[:min(room, len(p))]...)
	return len(p), nil
}

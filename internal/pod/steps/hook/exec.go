package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berth-run/berth/internal/base/sysmon"
)

const (
	maxAnswer = 1 << 20 // bytes of standard output
	maxStderr = 1 << 10 // bytes kept from the end of standard error

	// drain is how long the output may stay open after the hook's end, because a process it started still holds it.
	drain = time.Second
)

// run executes one hook and returns its standard output.
func (h *Hooks) run(ctx context.Context, moment, name string, input []byte) ([]byte, error) {
	limited, cancel := context.WithTimeoutCause(ctx, h.timeout, fmt.Errorf("did not end within %s", h.timeout))
	defer cancel()
	stdout, stderr := &buffer{max: maxAnswer}, &buffer{max: maxStderr, last: true}
	cmd := exec.CommandContext(limited, filepath.Join(h.dir, name))
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "BERTH_HOOK=" + moment}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), stdout, stderr
	// The hook gets its own process group, so that the processes it started end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drain
	err := sysmon.Run(cmd)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		err = context.Cause(limited)
	case errors.Is(err, exec.ErrWaitDelay):
		_ = cmd.Cancel()
		err = errors.New("ended, but a process it started keeps its output open: redirect that, or wait for it")
	case err == nil && stdout.cut:
		err = fmt.Errorf("answered more than %d bytes", maxAnswer)
	}
	if err == nil {
		return stdout.kept, nil
	}
	if text := strings.TrimSpace(string(stderr.kept)); text != "" {
		return nil, fmt.Errorf("hook %s: %w: %s", name, err, text)
	}
	return nil, fmt.Errorf("hook %s: %w", name, err)
}

// buffer keeps the first or the last max bytes, and accepts and drops the rest.
type buffer struct {
	kept []byte
	max  int
	last bool
	cut  bool
}

func (b *buffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p...)
	if over := len(b.kept) - b.max; over > 0 {
		b.cut = true
		if b.last {
			b.kept = b.kept[over:]
		} else {
			b.kept = b.kept[:b.max]
		}
	}
	return len(p), nil
}

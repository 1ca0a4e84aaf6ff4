package probe

import (
	"context"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

// askExec runs a command in a container. Exit status 0 is success, and a command that exceeds its timeout is a failure.
// If the runtime does not answer, the result says nothing about the container.
func (k *asker) askExec(ctx context.Context, id string, command []string, timeout time.Duration) answer {
	resp, err := k.cri.ExecSync(cri.LimitOutput(ctx, maxOutput), &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: command, Timeout: int64(timeout / time.Second),
	})
	switch {
	case err != nil && cri.IsDeadline(err) && !cri.IsHung(err):
		return answer{result: failure, late: true,
			output: fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout)}
	case err != nil:
		return answer{result: unknown, err: fmt.Errorf("run command in container: %w", err)}
	}
	output := string(head(resp.Stdout, maxOutput))
	output += string(head(resp.Stderr, maxOutput-len(output)))
	if resp.ExitCode != 0 {
		return answer{result: failure, output: output}
	}
	return answer{result: success, output: output}
}

func head(b []byte, n int) []byte { return b[:min(len(b), n)] }

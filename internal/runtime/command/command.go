package command

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

// cleanup is how long it may take to end a command whose caller has gone.
const cleanup = 2 * time.Second

// Runner runs commands.
type Runner struct {
	client    *containerd.Client
	namespace string // of the containers, in containerd
	dir       string // for pipes
}

// New returns a Runner with its pipes in a directory. It removes the pipes of a runtime that was killed.
func New(client *containerd.Client, namespace, dir string) (Runner, error) {
	if err := os.RemoveAll(dir); err != nil {
		return Runner{}, fmt.Errorf("remove the pipes of earlier commands: %w", err)
	}
	return Runner{client, namespace, dir}, nil
}

// Handle answers an ExecSync call whose caller has limited the output (cri.LimitOutput). ok is false for all other
// calls. Errors have the codes of containerd's ExecSync.
func (r Runner) Handle(ctx context.Context, req any) (answer *runtimeapi.ExecSyncResponse, ok bool, err error) {
	exec, isExec := req.(*runtimeapi.ExecSyncRequest)
	most, limited := cri.OutputLimit(ctx)
	if !isExec || !limited {
		return nil, false, nil
	}
	if answer, err = r.run(ctx, exec, most); err != nil {
		return nil, true, errgrpc.ToGRPC(fmt.Errorf("run a command in container %s: %w", exec.GetContainerId(), err))
	}
	return answer, true, nil
}

func (r Runner) run(ctx context.Context, req *runtimeapi.ExecSyncRequest,
	most int) (_ *runtimeapi.ExecSyncResponse, err error) {
	ctx = namespaces.WithNamespace(ctx, r.namespace) // the client adds it to some calls only
	container, err := r.client.LoadContainer(ctx, req.GetContainerId())
	if err != nil {
		return nil, err
	}
	spec, err := container.Spec(ctx)
	if err != nil {
		return nil, err
	}
	task, err := container.Task(ctx, nil)
	if err != nil {
		return nil, err
	}
	spec.Process.Terminal, spec.Process.Args = false, req.GetCmd()
	stdout, stderr := &head{left: most}, &head{left: most}
	process, err := task.Exec(ctx, rand.Text(), spec.Process,
		cio.NewCreator(cio.WithStreams(nil, stdout, stderr), cio.WithFIFODir(r.dir)))
	if err != nil {
		return nil, err
	}
	defer func() { // also if ctx has ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		_, failed := process.Delete(ctx, containerd.WithProcessKill)
		if failed != nil { // then Delete keeps the pipes, also if the process was removed with its container
			process.IO().Cancel()
			failed = errors.Join(failed, process.IO().Close())
		}
		if !errdefs.IsNotFound(failed) && err == nil {
			err = failed
		}
	}()
	if req.GetTimeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.GetTimeout())*time.Second)
		defer cancel()
	}
	exited, err := process.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if err := process.Start(ctx); err != nil {
		return nil, err
	}
	status := <-exited // also when ctx ends
	code, _, err := status.Result()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if err := drain(ctx, process); err != nil {
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.text.Bytes(), Stderr: stderr.text.Bytes(),
		ExitCode: int32(code)}, nil //nolint:gosec // an exit code has 8 bits
}

// drain waits until the output of a process has been read. A child of the process may hold it open.
func drain(ctx context.Context, process containerd.Process) error {
	done := make(chan struct{})
	go func() {
		process.IO().Wait() // Delete ends it
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// head keeps the first bytes that are written to it.
type head struct {
	text bytes.Buffer
	left int
}

// Write implements io.Writer. It never fails, so that a command can write on.
func (h *head) Write(p []byte) (int, error) {
	kept := p[:min(h.left, len(p))]
	h.left -= len(kept)
	h.text.Write(kept)
	return len(p), nil
}

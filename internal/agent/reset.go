package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/foundation"
	"github.com/berth-run/berth/internal/agent/leftover"
	"github.com/berth-run/berth/internal/agent/rootdir"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Reset ends everything that an agent left on this machine under its root directory, at once and without grace: pods,
// volumes, cgroups, the embedded runtime with its images and network, the packet filter rule, and the directory itself
// (package rootdir). It fails while an agent works there, and no agent can start there until it has ended. After an
// error it continues with the rest, and returns all errors. If pods may be left, it deletes no files.
func (a *Agent) Reset(ctx context.Context) (err error) {
	root, err := rootdir.Open(a.Config.RootDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	unlock, err := lock.Root(ctx, root.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	failed := a.resetPods(ctx)
	if a.machine.engine != nil {
		failed = errors.Join(failed, a.machine.engine.RemoveNetwork(ctx))
	}
	failed = errors.Join(failed, a.machine.firewall.Remove(ctx), a.machine.chains.Remove(ctx))
	run, err := rootdir.OpenRun(a.Config.RunDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return reset(ctx, failed, root)
	case err != nil:
		return errors.Join(failed, err)
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	return reset(ctx, failed, run, root)
}

// reset unmounts everything below the directories of an agent. A directory that lies in another one comes before it,
// and the root directory is the last. If nothing has failed before, reset deletes the directories and the root's
// sockets.
func reset(ctx context.Context, failed error, dirs ...*rootdir.Dir) error {
	var unmounts, removals error
	for _, d := range dirs {
		unmounts = errors.Join(unmounts, d.Unmount())
	}
	if failed != nil {
		return errors.Join(failed, unmounts)
	}
	removals = unixsocket.RemoveDir(ctx, filepath.Join(dirs[len(dirs)-1].Path, "runtime"))
	for i, d := range dirs {
		if !slices.ContainsFunc(dirs[i+1:], d.Within) { // the outer directory goes with everything in it
			removals = errors.Join(removals, d.Remove(ctx))
		}
	}
	return errors.Join(unmounts, removals)
}

// resetPods starts the runtime, ends all pods of this agent, and stops the runtime again.
func (a *Agent) resetPods(ctx context.Context) (err error) {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	base := foundation.New(outer, func() { cancel(nil) })
	defer func() { err = errors.Join(err, base.Stop()) }()
	late := time.AfterFunc(resetPatience, func() { cancel(errNoRuntime) })
	err = a.build(ctx, base.Launch)
	if !late.Stop() {
		return errNoRuntime
	}
	if err != nil {
		return err
	}
	ours, err := a.leftovers().Pods()
	if err != nil {
		return err
	}
	client := a.machine.engine.Client.Runtime
	boxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, box := range boxes.Items {
		uid := types.UID(box.Labels[pod.LabelPodUID])
		if a.machine.engine.Shared && !slices.Contains(ours, uid) {
			continue // another program's pod in a shared runtime
		}
		ours = append(ours, uid)
		err = errors.Join(err, leftover.Unlink(ctx, client, box, podlog.LinkDir(a.Config.Pods.LogsDir)),
			leftover.End(ctx, client, box.Id, resetPatience))
	}
	slices.Sort(ours)
	for _, uid := range slices.Compact(ours) {
		err = errors.Join(err, a.steps.volumes.Remove(ctx, uid), a.steps.cgroups.Remove(ctx, uid),
			a.steps.dirs.Remove(ctx, uid), a.steps.dirs.RemoveLogs(ctx, uid))
	}
	return errors.Join(err, a.steps.cgroups.RemoveLevels())
}

// resetPatience is how long a reset waits for the runtime to answer, and how long it tries to remove a sandbox.
const resetPatience = 30 * time.Second

var errNoRuntime = fmt.Errorf(
	"the container runtime has not answered for %v: start it, or correct containerRuntimeEndpoint, and reset again",
	resetPatience)

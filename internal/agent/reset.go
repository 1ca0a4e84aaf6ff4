package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/lock"
	"github.com/berth-run/berth/internal/agent/rootdir"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/podlog"
)

// Reset ends everything that an agent left on this machine under its root
// directory, at once and without grace: pods, volumes, cgroups, the embedded
// runtime with its images and network, and the directory itself (package rootdir).
// It fails while an agent works there. What can be undone is undone also when some of it fails.
func (a *Agent) Reset(ctx context.Context) error {
	root := a.config.RootDir
	if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := lock.Root(root)
	if err != nil {
		return err
	}
	err = a.resetPods(ctx)
	if a.engine != nil && a.engine.embedded != nil {
		err = errors.Join(err, a.engine.embedded.RemoveNetwork())
	}
	err = errors.Join(err, unlock())
	for _, dir := range []string{a.config.RunDir, root} {
		err = errors.Join(err, unmountBelow(dir))
	}
	if err != nil {
		return err // nothing is deleted through a mount that stayed
	}
	return errors.Join(os.RemoveAll(a.config.RunDir), rootdir.Remove(root))
}

// resetPods runs the runtime for as long as it takes to end all pods.
func (a *Agent) resetPods(ctx context.Context) (err error) {
	launch, stop := foundation(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(resetPatience, func() { cancel(errNoRuntime) })
	err = a.build(ctx, func(run func(context.Context) error) { launch(run, func() { cancel(nil) }) })
	if !late.Stop() {
		return errNoRuntime
	}
	if err != nil {
		return err
	}
	ours, err := a.leftovers()
	if err != nil {
		return err
	}
	client := a.engine.client.Runtime
	boxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, box := range boxes.Items {
		uid := types.UID(box.Labels[pod.LabelPodUID])
		if a.engine.embedded == nil && !slices.Contains(ours, uid) {
			continue // somebody else's pod in an external runtime
		}
		ours = append(ours, uid)
		err = errors.Join(err, a.unlinkLogs(ctx, box))
		err = errors.Join(err, endSandbox(ctx, client, box.Id))
	}
	slices.Sort(ours)
	for _, uid := range slices.Compact(ours) {
		err = errors.Join(err, a.steps.volumes.Remove(ctx, uid), a.steps.cgroups.Remove(ctx, uid), a.steps.dirs.Remove(ctx, uid), a.steps.dirs.RemoveLogs(ctx, uid))
	}
	return errors.Join(err, a.steps.cgroups.RemoveLevels())
}

// resetPatience is how long a reset waits for the runtime to answer, and for it
// to let go of a sandbox.
const resetPatience = 30 * time.Second

var errNoRuntime = fmt.Errorf("the container runtime has not answered for %v: start it, or correct containerRuntimeEndpoint, and reset again", resetPatience)

// endSandbox tries for a while: a runtime may still be busy with what an agent
// that was killed had asked for.
func endSandbox(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) (err error) {
	for giveUp := time.Now().Add(resetPatience); time.Now().Before(giveUp); {
		_, stopErr := client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		_, err = client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		if err == nil || cri.IsNotFound(err) {
			return nil
		}
		if err = fmt.Errorf("end sandbox %s: %w", id, errors.Join(stopErr, err)); cri.IsHung(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
	return err
}

// unlinkLogs removes the links that collectors find a sandbox's logs by.
func (a *Agent) unlinkLogs(ctx context.Context, box *runtimeapi.PodSandbox) error {
	dir := linkDir(a.config)
	if dir == "" {
		return nil
	}
	in, err := a.engine.client.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: box.Id},
	})
	if err != nil {
		return err
	}
	for _, c := range in.Containers {
		link := podlog.LegacyLink(dir, box.GetMetadata().GetNamespace(), box.GetMetadata().GetName(), c.GetMetadata().GetName(), c.Id)
		if e := os.Remove(link); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove log link: %w", e))
		}
	}
	return err
}

// unmountBelow unmounts what is mounted in a directory, the innermost first.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != dir && !strings.HasPrefix(m.Mountpoint, filepath.Clean(dir)+"/"), false
	})
	for _, m := range slices.Backward(mounts) {
		if e := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); e != nil && !errors.Is(e, unix.EINVAL) {
			err = errors.Join(err, fmt.Errorf("unmount %s: %w", m.Mountpoint, e))
		}
	}
	return err
}

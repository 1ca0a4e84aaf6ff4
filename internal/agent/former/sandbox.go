package former

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/record/podlog"
)

const (
	// patience is how long the removal of a sandbox is tried.
	patience = 30 * time.Second
	// apart is the pause between two attempts to end a sandbox.
	apart = 200 * time.Millisecond
	// atOnce is how many sandboxes end at the same time.
	atOnce = 16
)

// Sandboxes ends the sandboxes of a runtime that belong to the root directory, and returns their pods and those of left
// (see owned). A container may take its grace period to end, and at most grace. 0 kills it at once.
func Sandboxes(ctx context.Context, o Options, e *engine.Engine, left []types.UID, grace time.Duration) ([]types.UID,
	error) {
	client := e.Client.Runtime
	all, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	boxes, pods := owned(all.Items, left, e.Shared)
	links := podlog.LinkDir(o.Config.Pods.LogsDir)
	failures := make([]error, len(boxes))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, box := range boxes {
		group.Go(func() error {
			failures[i] = errors.Join(empty(ctx, client, box, links, grace),
				endSandbox(ctx, client, box.Id))
			return nil
		})
	}
	_ = group.Wait() // failures has the errors
	return pods, errors.Join(failures...)
}

// empty stops the containers of a sandbox if they have a grace period, and removes the links to their logs. links is
// the directory of such links, or "".
func empty(ctx context.Context, client runtimeapi.RuntimeServiceClient, box *runtimeapi.PodSandbox, links string,
	most time.Duration) error {
	if most == 0 && links == "" {
		return nil
	}
	in, err := client.ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: box.Id}})
	if err != nil {
		return err
	}
	var group errgroup.Group
	for _, c := range in.Containers {
		if grace := graceOf(c, most); grace > 0 && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			group.Go(func() error {
				_, err := client.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.Id, Timeout: grace})
				if err == nil || cri.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("stop container %s: %w", c.Id, err)
			})
		}
	}
	err = group.Wait()
	for _, c := range in.Containers {
		err = errors.Join(err, unlink(box, c, links))
	}
	return err
}

// endSandbox stops and removes a sandbox with its containers. It retries for at most patience, since the runtime may
// still be busy with calls of an agent that was killed.
func endSandbox(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) (err error) {
	for giveUp := time.Now().Add(patience); time.Now().Before(giveUp); {
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
		case <-time.After(apart):
		}
	}
	return err
}

// unlink removes the link in dir through which log collectors find the log of a container. dir may be "".
func unlink(box *runtimeapi.PodSandbox, c *runtimeapi.Container, dir string) error {
	if dir == "" {
		return nil
	}
	link := podlog.LegacyLink(dir, box.GetMetadata().GetNamespace(), box.GetMetadata().GetName(),
		c.GetMetadata().GetName(), c.Id)
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove log link: %w", err)
	}
	return nil
}

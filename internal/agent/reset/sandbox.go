package reset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/record/podlog"
)

// apart is the pause between two attempts to end a sandbox.
const apart = 200 * time.Millisecond

// endSandboxes ends the sandboxes of a runtime that belong to this root directory, and returns their pods and those of
// left (see owned). links is the directory of the links to their logs, or "".
func endSandboxes(ctx context.Context, e *engine.Engine, left []types.UID, links string) (pods []types.UID, err error) {
	client := e.Client.Runtime
	all, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	boxes, pods := owned(all.Items, left, e.Shared)
	for _, box := range boxes {
		err = errors.Join(err, unlink(ctx, client, box, links), endSandbox(ctx, client, box.Id))
	}
	return pods, err
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

// unlink removes the links in dir through which log collectors find the logs of a sandbox's containers. It does nothing
// if dir is "".
func unlink(ctx context.Context, client runtimeapi.RuntimeServiceClient, box *runtimeapi.PodSandbox, dir string) error {
	if dir == "" {
		return nil
	}
	in, err := client.ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: box.Id}})
	if err != nil {
		return err
	}
	for _, c := range in.Containers {
		link := podlog.LegacyLink(dir, box.GetMetadata().GetNamespace(), box.GetMetadata().GetName(),
			c.GetMetadata().GetName(), c.Id)
		if e := os.Remove(link); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove log link: %w", e))
		}
	}
	return err
}

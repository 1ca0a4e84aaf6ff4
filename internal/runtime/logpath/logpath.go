package logpath

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/logfile"
)

// Paths changes the calls of one CRI service. The zero value changes none.
type Paths struct {
	// CRI is the service of the plugin.
	CRI runtimeapi.RuntimeServiceServer
	// Others are the runtime handlers whose shims write no logs. The plugin writes the logs of their containers.
	Others []string
}

// Before moves the path of a new container's log into an annotation. A caller cannot set the annotation.
func (p Paths) Before(ctx context.Context, req any) error {
	create, ok := req.(*runtimeapi.CreateContainerRequest)
	if !ok || create.GetConfig() == nil || p.CRI == nil {
		return nil
	}
	config, dir := create.Config, create.GetSandboxConfig().GetLogDirectory()
	delete(config.Annotations, logfile.Annotation)
	if other, err := p.other(ctx, create.GetPodSandboxId()); other || err != nil {
		return err
	}
	if dir == "" || config.LogPath == "" {
		return nil
	}
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[logfile.Annotation] = filepath.Join(dir, config.LogPath)
	config.LogPath = ""
	return nil
}

// other reports whether a sandbox has one of the handlers whose shims write no logs.
func (p Paths) other(ctx context.Context, sandbox string) (bool, error) {
	if len(p.Others) == 0 {
		return false, nil
	}
	answer, err := p.CRI.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		return false, err
	}
	return slices.Contains(p.Others, answer.GetStatus().GetRuntimeHandler()), nil
}

// After puts the paths of logs back into an answer. After a call to reopen a log it creates the file: the shim
// continues there with the next line.
func (p Paths) After(ctx context.Context, req, answer any) error {
	restore(answer)
	reopen, ok := req.(*runtimeapi.ReopenContainerLogRequest)
	if !ok || p.CRI == nil {
		return nil
	}
	return p.reopen(ctx, reopen.GetContainerId())
}

func (p Paths) reopen(ctx context.Context, id string) error {
	answer, err := p.CRI.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return err
	}
	path := answer.GetStatus().GetAnnotations()[logfile.Annotation]
	if path == "" {
		return nil
	}
	if err := touch(path); err != nil {
		return fmt.Errorf("reopen log of container %s: %w", id, err)
	}
	return nil
}

// touch creates a log that does not exist.
func touch(log string) error {
	root, rel, err := logfile.Root(log)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	const mode = 0o640
	file, err := root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if err != nil {
		return err
	}
	return file.Close()
}

// restore puts the paths of logs back into an answer or event.
func restore(message any) {
	switch message := message.(type) {
	case *runtimeapi.ContainerStatusResponse:
		restoreAll(message.GetStatus())
	case *runtimeapi.PodSandboxStatusResponse:
		restoreAll(message.GetContainersStatuses()...)
	case *runtimeapi.ContainerEventResponse:
		restoreAll(message.GetContainersStatuses()...)
	case *runtimeapi.ListContainersResponse:
		hideAll(message.GetContainers())
	case *runtimeapi.StreamContainersResponse:
		hideAll(message.GetContainers())
	case *runtimeapi.ContainerStatsResponse:
		hide(message.GetStats())
	case *runtimeapi.ListContainerStatsResponse:
		hide(message.GetStats()...)
	case *runtimeapi.StreamContainerStatsResponse:
		hide(message.GetContainerStats()...)
	}
}

func hideAll(containers []*runtimeapi.Container) {
	for _, container := range containers {
		_, container.Annotations = split(container.GetAnnotations())
	}
}

func restoreAll(statuses ...*runtimeapi.ContainerStatus) {
	for _, status := range statuses {
		if path, annotations := split(status.GetAnnotations()); path != "" {
			status.LogPath, status.Annotations = path, annotations
		}
	}
}

func hide(stats ...*runtimeapi.ContainerStats) {
	for _, s := range stats {
		if path, annotations := split(s.GetAttributes().GetAnnotations()); path != "" {
			s.Attributes.Annotations = annotations
		}
	}
}

// split returns the path of a log and the other annotations. It leaves the map as it is: the plugin keeps it.
func split(annotations map[string]string) (path string, others map[string]string) {
	path, ok := annotations[logfile.Annotation]
	if !ok {
		return "", annotations
	}
	others = maps.Clone(annotations)
	delete(others, logfile.Annotation)
	return path, others
}

// Events is a stream whose messages have the paths of logs.
type Events struct{ grpc.ServerStream }

// SendMsg implements grpc.ServerStream.
func (e Events) SendMsg(message any) error {
	if event, ok := message.(*runtimeapi.ContainerEventResponse); ok {
		message = proto.Clone(event) // other streams send it too
	}
	restore(message)
	return e.ServerStream.SendMsg(message)
}

package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/observed"
)

// Streams prepares connections into pods. The runtime's streaming server then serves them.
type Streams struct {
	CRI      *cri.Client
	Observed *observed.Table
}

// ContainerID returns the runtime's id of a pod's container.
func ContainerID(p *corev1.Pod, name string) string {
	for _, s := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		if s.Name == name {
			_, id, _ := strings.Cut(s.ContainerID, "://")
			return id
		}
	}
	return ""
}

// ExecURL implements server.Streams.
func (x Streams) ExecURL(ctx context.Context, p *corev1.Pod, o *corev1.PodExecOptions) (string, error) {
	r, err := x.CRI.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: ContainerID(p, o.Container), Cmd: o.Command, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout,
		Stderr: o.Stderr})
	return r.GetUrl(), err
}

// AttachURL implements server.Streams.
func (x Streams) AttachURL(ctx context.Context, p *corev1.Pod, o *corev1.PodAttachOptions) (string, error) {
	r, err := x.CRI.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: ContainerID(p, o.Container), Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	return r.GetUrl(), err
}

// PortForwardURL implements server.Streams.
func (x Streams) PortForwardURL(ctx context.Context, p *corev1.Pod) (string, error) {
	box, ok := x.Observed.Observed(p.UID).Sandbox()
	if !ok {
		return "", answer.BadRequest("the pod has no sandbox", fmt.Sprintf(
			"wait until it runs; \"berth describe pod %s -n %s\" shows why it does not", p.Name, p.Namespace))
	}
	r, err := x.CRI.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: box.ID})
	return r.GetUrl(), err
}

package agent

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streams prepares connections into pods: the runtime serves them.
type streams struct{ a *Agent }

// containerID is the id that the runtime knows a pod's container by.
func containerID(p *corev1.Pod, name string) string {
	for _, s := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses) {
		if s.Name == name {
			_, id := splitID(s.ContainerID)
			return id
		}
	}
	return ""
}

// ExecURL implements server.Streams.
func (x streams) ExecURL(ctx context.Context, p *corev1.Pod, o *corev1.PodExecOptions) (string, error) {
	r, err := x.a.engine.client.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: containerID(p, o.Container), Cmd: o.Command, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	return r.GetUrl(), err
}

// AttachURL implements server.Streams.
func (x streams) AttachURL(ctx context.Context, p *corev1.Pod, o *corev1.PodAttachOptions) (string, error) {
	r, err := x.a.engine.client.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: containerID(p, o.Container), Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	return r.GetUrl(), err
}

// PortForwardURL implements server.Streams.
func (x streams) PortForwardURL(ctx context.Context, p *corev1.Pod) (string, error) {
	box, ok := x.a.pleg.Observed(p.UID).Sandbox()
	if !ok {
		return "", errors.New("the pod has no sandbox")
	}
	r, err := x.a.engine.client.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: box.ID})
	return r.GetUrl(), err
}

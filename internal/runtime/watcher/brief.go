package watcher

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Brief returns a stream whose events only say what happened to which container of which pod, if the client is the
// agent of this process. It returns the streams of other clients as they are. containerd adds the statuses of all
// containers of the pod to each event: when hundreds of containers of a pod end at the same time, the events that wait
// have hundreds of megabytes. The agent reads the statuses that it needs.
func Brief(stream grpc.ServerStream) grpc.ServerStream {
	if from, ok := peer.FromContext(stream.Context()); ok && from.Addr.Network() == "bufconn" {
		return brief{stream}
	}
	return stream
}

type brief struct{ grpc.ServerStream }

// SendMsg implements grpc.ServerStream.
func (b brief) SendMsg(message any) error {
	if e, ok := message.(*runtimeapi.ContainerEventResponse); ok {
		box := e.GetPodSandboxStatus()
		message = &runtimeapi.ContainerEventResponse{
			ContainerId: e.GetContainerId(), ContainerEventType: e.GetContainerEventType(), CreatedAt: e.GetCreatedAt(),
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: box.GetId(), Metadata: box.GetMetadata()},
		}
	}
	return b.ServerStream.SendMsg(message)
}

package watcher

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sent is a stream to a client that keeps the last message.
type sent struct {
	grpc.ServerStream
	ctx  context.Context
	last any
}

func (s *sent) Context() context.Context { return s.ctx }

func (s *sent) SendMsg(message any) error {
	s.last = message
	return nil
}

func TestBriefLeavesStatusesOutForTheAgent(t *testing.T) {
	box := &runtimeapi.PodSandboxMetadata{Uid: "u", Name: "n"}
	event := &runtimeapi.ContainerEventResponse{ContainerId: "c", CreatedAt: 7,
		ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s", Metadata: box,
			Annotations: map[string]string{"a": "b"}},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: "c"}}}
	short := &runtimeapi.ContainerEventResponse{ContainerId: "c", CreatedAt: 7,
		ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "s", Metadata: box}}
	for name, c := range map[string]struct {
		from net.Addr
		want *runtimeapi.ContainerEventResponse
	}{
		"the agent":      {bufconn.Listen(1).Addr(), short},
		"another client": {&net.UnixAddr{Net: "unix"}, event},
	} {
		to := &sent{ctx: peer.NewContext(t.Context(), &peer.Peer{Addr: c.from})}
		if err := Brief(to).SendMsg(event); err != nil {
			t.Fatal(err)
		}
		if got, _ := to.last.(*runtimeapi.ContainerEventResponse); !proto.Equal(got, c.want) {
			t.Errorf("%s: sent %v, want %v", name, got, c.want)
		}
	}
}

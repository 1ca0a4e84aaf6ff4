package pleg

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
)

// answers is a runtime that answers each kind of call with fixed bytes.
type answers map[string][]byte

func (a answers) Invoke(_ context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	if err := proto.Unmarshal(a[method], reply.(proto.Message)); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (answers) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// FuzzAnswers reads pods from a runtime with any answers. Each pod that is observed is complete.
func FuzzAnswers(f *testing.F) {
	labels := map[string]string{pod.LabelPodUID: "u1", pod.LabelContainerName: "app"}
	meta := &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1"}
	bytes := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	boxes := bytes(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
		{Id: "s1", Metadata: meta, Labels: labels}, {Id: "s0", Labels: labels, State: 1}}})
	containers := bytes(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{Id: "c1", PodSandboxId: "s1", Labels: labels, State: 1}, {Id: "c0", Labels: labels, State: 2}}})
	box := bytes(&runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "s1", Metadata: meta,
		CreatedAt: 1, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "192.0.2.1",
			AdditionalIps: []*runtimeapi.PodIP{{Ip: "2001:db8::1"}, nil}}}})
	container := bytes(&runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "c1",
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, CreatedAt: 1, StartedAt: -1, Labels: labels,
		Image: &runtimeapi.ImageSpec{Image: "i"}, ImageRef: "sha256:1", State: 1,
		Annotations: map[string]string{pod.AnnotationRestartCount: "-3", pod.AnnotationBackoff: "9999999h",
			pod.AnnotationTerminationGrace: "7"}}})
	f.Add(boxes, containers, box, container)
	f.Add(boxes, containers, []byte{}, []byte{})
	f.Add([]byte{}, containers, box, container)
	f.Fuzz(func(t *testing.T, boxes, containers, box, container []byte) {
		const service = "/runtime.v1.RuntimeService/"
		client, err := cri.NewFromConn("fuzz", answers{service + "ListPodSandbox": boxes,
			service + "ListContainers": containers, service + "PodSandboxStatus": box,
			service + "ContainerStatus": container}, cri.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := New(Options{Runtime: client.Runtime, Table: observed.New(), Now: time.Now,
			Log: slog.New(slog.DiscardHandler)})
		err = p.relist(t.Context(), true)
		var named *cri.Error
		if err != nil && !errors.As(err, &named) {
			t.Errorf("the error does not name the call: %v", err)
		}
		for uid, o := range p.table.Snapshot().All() {
			if uid == "" || len(o.Sandboxes) == 0 && len(o.Containers) == 0 {
				t.Errorf("pod %q is observed without anything: %+v", uid, o)
			}
			for _, c := range o.Containers {
				if c.ID == "" || c.Image == "" || c.ImageID == "" || c.CreatedAt.IsZero() || c.Backoff < 0 ||
					c.RestartCount < 0 || c.RestartCount > math.MaxInt32 {
					t.Errorf("pod %s has the container %+v", uid, c)
				}
			}
			for _, s := range o.Sandboxes {
				if s.ID == "" && s.CreatedAt.IsZero() {
					t.Errorf("pod %s has the sandbox %+v", uid, s)
				}
			}
		}
	})
}

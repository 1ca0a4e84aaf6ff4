package files

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

// verbose is a runtime that reports one text as the verbose status of each container.
type verbose string

func (v verbose) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	proto.Merge(reply.(proto.Message), &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
			CreatedAt: 1, StartedAt: 1, Image: &runtimeapi.ImageSpec{Image: "i"}, ImageRef: "sha256:1",
			State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		Info: map[string]string{"info": string(v)}})
	return nil
}

func (verbose) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// FuzzInfo reads the process of a container from a runtime with any verbose status. The process is one, or the error
// names the runtime. Other IDs would lead to the files of the agent itself, or of no process.
func FuzzInfo(f *testing.F) {
	for _, info := range []string{`{"pid":7,"sandboxID":"s1"}`, `{"pid":0}`, `{"pid":-1}`, `{"pid":"self"}`,
		`{"pid":1e3}`, `{"pid":9223372036854775808}`, `{"pid":4294967303}`, `null`, ``} {
		f.Add(info)
	}
	f.Fuzz(func(t *testing.T, info string) {
		client, err := cri.NewFromConn("fuzz", verbose(info), cri.Options{})
		if err != nil {
			t.Fatal(err)
		}
		x := Files{CRI: client, Runtime: "fuzzed"}
		pid, err := x.pid(t.Context(), "c1")
		switch {
		case err != nil && !strings.Contains(err.Error(), "fuzzed"):
			t.Errorf("the error does not name the runtime: %v", err)
		case err == nil && pid <= 0:
			t.Errorf("the process is %d", pid)
		}
	})
}

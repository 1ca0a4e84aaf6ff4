package pressure

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/node/eviction/facts"
)

// splitImages is a runtime that has writable layers on a file system of their own.
type splitImages struct{ runtimeapi.ImageServiceClient }

func (splitImages) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (
	*runtimeapi.ImageFsInfoResponse, error) {
	at := func(dir string) []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: dir}}}
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: at("/images"), ContainerFilesystems: at("/layers")}, nil
}

func TestDirectoriesOfLayersDependOnTheFeatureGate(t *testing.T) {
	for together, layers := range map[bool]string{false: "/layers", true: "/images"} {
		d := NewDisk(DiskOptions{Dir: "/root", CRI: &cri.Client{Images: splitImages{}}, Together: together})
		got, err := d.directories(t.Context())
		if want := (facts.Disks{Node: "/root", Image: "/images", Container: layers}); err != nil || got != want {
			t.Errorf("together %t: %+v, %v, want %+v", together, got, err, want)
		}
	}
}

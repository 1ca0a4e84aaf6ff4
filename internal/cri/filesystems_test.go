package cri

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type fixedFileSystems struct{ images, layers []string }

func (f fixedFileSystems) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest,
	...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := func(dirs []string) (all []*runtimeapi.FilesystemUsage) {
		for _, d := range dirs {
			all = append(all, &runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: d}})
		}
		return all
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: usage(f.images), ContainerFilesystems: usage(f.layers),
	}, nil
}

func TestFileSystems(t *testing.T) {
	for name, x := range map[string]struct {
		runtime        fixedFileSystems
		images, layers string
	}{
		"images only":             {fixedFileSystems{images: []string{"/images"}}, "/images", "/images"},
		"two file systems":        {fixedFileSystems{[]string{"/images"}, []string{"/layers"}}, "/images", "/layers"},
		"layers without a name":   {fixedFileSystems{[]string{"/images"}, []string{""}}, "/images", "/images"},
		"first without directory": {fixedFileSystems{images: []string{"", "/images"}}, "/images", "/images"},
	} {
		images, layers, err := FileSystems(t.Context(), x.runtime)
		if err != nil || images.FsId.Mountpoint != x.images || layers.FsId.Mountpoint != x.layers {
			t.Errorf("%s: %v, %v, %v", name, images, layers, err)
		}
	}
	for _, x := range []fixedFileSystems{{}, {images: []string{""}}, {layers: []string{"/layers"}}} {
		if _, _, err := FileSystems(t.Context(), x); err == nil || !strings.Contains(err.Error(), "no file system") {
			t.Errorf("%v: %v", x, err)
		}
	}
}

package cri

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type filesystems interface {
	ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse,
		error)
}

// FileSystems asks the runtime for the directories of its images and of the writable layers of its containers, and for
// what they use. A runtime that names no directory for layers keeps them with the images (KEP-4191). It is an error if
// it names none for images.
func FileSystems(ctx context.Context, runtime filesystems) (images, layers *runtimeapi.FilesystemUsage, err error) {
	r, err := runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, nil, err
	}
	images = first(r.ImageFilesystems)
	if images == nil {
		return nil, nil, errors.New("the runtime reports no file system of images")
	}
	if layers = first(r.ContainerFilesystems); layers == nil {
		layers = images
	}
	return images, layers, nil
}

// first returns the first file system whose directory is known, or nil.
func first(all []*runtimeapi.FilesystemUsage) *runtimeapi.FilesystemUsage {
	for _, f := range all {
		if f.GetFsId().GetMountpoint() != "" {
			return f
		}
	}
	return nil
}

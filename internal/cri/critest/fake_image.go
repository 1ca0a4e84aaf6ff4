package critest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageServer is the fake's CRI image service.
type imageServer struct {
	*Fake
	runtimeapi.UnimplementedImageServiceServer
}

func imageID(ref string) string {
	if strings.HasPrefix(ref, "sha256:") {
		return ref
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(ref)))
}

func fakeImage(ref string) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: imageID(ref), RepoTags: []string{ref}, Size: 1 << 20,
		Uid: &runtimeapi.Int64Value{Value: 0}, Spec: &runtimeapi.ImageSpec{Image: ref},
	}
}

// image finds an image by reference or id.
func (f *Fake) image(ref string) *runtimeapi.Image {
	for _, image := range f.images {
		if image.Id == ref || slices.Contains(image.RepoTags, ref) {
			return image
		}
	}
	return nil
}

func (i *imageServer) ImageStatus(_ context.Context,
	req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: i.image(req.GetImage().GetImage())}, nil
}

func (i *imageServer) ListImages(_ context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse,
	error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	want, resp := req.GetFilter().GetImage().GetImage(), &runtimeapi.ListImagesResponse{}
	for _, image := range i.images {
		if want == "" || image == i.image(want) {
			resp.Images = append(resp.Images, image)
		}
	}
	slices.SortFunc(resp.Images, func(a, b *runtimeapi.Image) int { return strings.Compare(a.Id, b.Id) })
	return resp, nil
}

func (i *imageServer) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse,
	error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	ref := req.GetImage().GetImage()
	if i.image(ref) == nil {
		if !i.registry[ref] {
			return nil, notFound("image", ref)
		}
		i.images[ref] = fakeImage(ref)
	}
	return &runtimeapi.PullImageResponse{ImageRef: i.image(ref).Id}, nil
}

func (i *imageServer) RemoveImage(_ context.Context,
	req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if image := i.image(req.GetImage().GetImage()); image != nil {
		delete(i.images, image.RepoTags[0])
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (i *imageServer) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse,
	error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/fake"},
		UsedBytes: &runtimeapi.UInt64Value{Value: 1 << 20}, InodesUsed: &runtimeapi.UInt64Value{Value: 1},
	}}}, nil
}

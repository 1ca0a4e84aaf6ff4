package fake

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// images are the images of the fake, and the registry that it pulls from.
type images struct {
	mu       sync.Mutex
	stored   map[string]*runtimeapi.Image // by reference
	registry map[string]bool              // references that PullImage can pull
}

func newImages() *images {
	return &images{stored: map[string]*runtimeapi.Image{}, registry: map[string]bool{}}
}

// find returns the image with a reference or id, or nil. The caller holds mu.
func (i *images) find(ref string) *runtimeapi.Image {
	for _, image := range i.stored {
		if image.Id == ref || slices.Contains(image.RepoTags, ref) {
			return image
		}
	}
	return nil
}

// contains reports whether an image with this reference or id is stored.
func (i *images) contains(ref string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.find(ref) != nil
}

// imageServer is the fake's CRI image service.
type imageServer struct {
	images *images
	runtimeapi.UnimplementedImageServiceServer
}

func imageID(ref string) string {
	if strings.HasPrefix(ref, "sha256:") {
		return ref
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(ref)))
}

func imageOf(ref string) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: imageID(ref), RepoTags: []string{ref}, Size: 1 << 20,
		Uid: &runtimeapi.Int64Value{Value: 0}, Spec: &runtimeapi.ImageSpec{Image: ref},
	}
}

func (i *imageServer) ImageStatus(_ context.Context,
	req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	i.images.mu.Lock()
	defer i.images.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: i.images.find(req.GetImage().GetImage())}, nil
}

func (i *imageServer) ListImages(_ context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse,
	error) {
	i.images.mu.Lock()
	defer i.images.mu.Unlock()
	want, resp := req.GetFilter().GetImage().GetImage(), &runtimeapi.ListImagesResponse{}
	for _, image := range i.images.stored {
		if want == "" || image == i.images.find(want) {
			resp.Images = append(resp.Images, image)
		}
	}
	slices.SortFunc(resp.Images, func(a, b *runtimeapi.Image) int { return strings.Compare(a.Id, b.Id) })
	return resp, nil
}

func (i *imageServer) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse,
	error) {
	i.images.mu.Lock()
	defer i.images.mu.Unlock()
	ref := req.GetImage().GetImage()
	if i.images.find(ref) == nil {
		if !i.images.registry[ref] {
			return nil, notFound("image", ref)
		}
		i.images.stored[ref] = imageOf(ref)
	}
	return &runtimeapi.PullImageResponse{ImageRef: i.images.find(ref).Id}, nil
}

func (i *imageServer) RemoveImage(_ context.Context,
	req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	i.images.mu.Lock()
	defer i.images.mu.Unlock()
	if image := i.images.find(req.GetImage().GetImage()); image != nil {
		delete(i.images.stored, image.RepoTags[0])
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

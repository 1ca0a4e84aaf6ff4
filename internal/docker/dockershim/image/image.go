package image

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
)

// Engine has the properties of the Engine.
type Engine interface {
	// Store returns the directory that has the images and the writable layers of containers.
	Store(ctx context.Context) (string, error)
}

// Service answers the calls of the CRI for images.
type Service struct {
	runtimeapi.UnimplementedImageServiceServer
	client *docker.Client
	engine Engine
	puller puller
	// pinned is the name of the image of pause containers.
	pinned string
	// names has the names of each image by its ID.
	names sync.Map
}

// New allocates a service.
func New(c *docker.Client, engine Engine, o PullOptions, pinned string) *Service {
	return &Service{client: c, engine: engine, puller: puller{client: c, PullOptions: o}, pinned: pinned}
}

// names are the first tag of an image, empty if it has none, and its digest, or its ID if it has none.
type names struct{ tag, digest string }

// Names returns the first tag of an image, empty if it has none, and its digest, or its ID if it has none.
func (s *Service) Names(ctx context.Context, id string) (tag, digest string) {
	if known, ok := s.names.Load(id); ok {
		return known.(names).tag, known.(names).digest
	}
	found, err := s.client.ImageInspect(ctx, id)
	if docker.IsNotFound(err) { // it was removed, and its containers stay
		s.names.Store(id, names{digest: id})
	}
	if err != nil {
		return "", id
	}
	n := names{digest: id}
	if tags := normalized(found.RepoTags); len(tags) > 0 {
		n.tag = tags[0]
	}
	if digests := normalized(found.RepoDigests); len(digests) > 0 {
		n.digest = digests[0]
	}
	s.names.Store(id, n)
	return n.tag, n.digest
}

// ListImages implements the CRI.
func (s *Service) ListImages(ctx context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse,
	error) {
	images, err := s.list(ctx, r.GetFilter())
	return &runtimeapi.ListImagesResponse{Images: images}, err
}

func (s *Service) list(ctx context.Context, f *runtimeapi.ImageFilter) (images []*runtimeapi.Image, err error) {
	if name := f.GetImage().GetImage(); name != "" {
		found, err := s.find(ctx, name)
		if err != nil || found == nil {
			return nil, err
		}
		return []*runtimeapi.Image{found}, nil
	}
	listed, err := s.client.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, docker.Error(err)
	}
	for i := range listed.Items {
		images = append(images, summary(&listed.Items[i], s.pinned))
	}
	return images, nil
}

// page is how many items a message of a stream has.
const page = 500

// StreamImages implements the CRI.
func (s *Service) StreamImages(r *runtimeapi.StreamImagesRequest,
	to grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	images, err := s.list(to.Context(), r.GetFilter())
	for len(images) > 0 && err == nil {
		n := min(page, len(images))
		err = to.Send(&runtimeapi.StreamImagesResponse{Images: images[:n]})
		images = images[n:]
	}
	return err
}

// find returns the image with a name or an ID; nil if there is none.
func (s *Service) find(ctx context.Context, name string) (*runtimeapi.Image, error) {
	found, err := s.client.ImageInspect(ctx, familiar(name))
	if docker.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, docker.Error(err)
	}
	return inspected(&found.InspectResponse, s.pinned), nil
}

// ImageStatus implements the CRI.
func (s *Service) ImageStatus(ctx context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse,
	error) {
	found, err := s.find(ctx, r.GetImage().GetImage())
	return &runtimeapi.ImageStatusResponse{Image: found}, err
}

// PullImage implements the CRI.
func (s *Service) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse,
	error) {
	name := r.GetImage().GetImage()
	if err := s.puller.pull(ctx, name, r.GetAuth()); err != nil {
		return nil, err
	}
	found, err := s.client.ImageInspect(ctx, familiar(name))
	if err != nil {
		return nil, fmt.Errorf("look for the pulled image %s: %w", name, docker.Error(err))
	}
	s.names.Delete(found.ID)
	return &runtimeapi.PullImageResponse{ImageRef: found.ID}, nil
}

// Pull pulls an image without credentials.
func (s *Service) Pull(ctx context.Context, name string) error { return s.puller.pull(ctx, name, nil) }

// RemoveImage implements the CRI. It removes all names of the image. Removing an unknown image does nothing.
func (s *Service) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse,
	error) {
	found, err := s.client.ImageInspect(ctx, familiar(r.GetImage().GetImage()))
	if docker.IsNotFound(err) {
		return &runtimeapi.RemoveImageResponse{}, nil
	}
	if err != nil {
		return nil, docker.Error(err)
	}
	names := append(append(found.RepoTags, found.RepoDigests...), found.ID)
	for _, name := range names { // the image goes with its last name
		_, err := s.client.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true})
		if err != nil && !docker.IsNotFound(err) {
			return nil, docker.Error(err)
		}
	}
	s.names.Delete(found.ID)
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo implements the CRI. Images and the files of containers are in the same directory.
func (s *Service) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse,
	error) {
	root, err := s.engine.Store(ctx)
	if err != nil {
		return nil, err
	}
	used, err := s.used(ctx)
	if err != nil {
		return nil, err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(root, &stat); err != nil {
		return nil, fmt.Errorf("measure the file system of %s: %w", root, err)
	}
	usage := usageOf(root, used, stat.Files-stat.Ffree)
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{usage},
		ContainerFilesystems: []*runtimeapi.FilesystemUsage{usage}}, nil
}

// used returns the size of all images in bytes. Before version 23 the Engine can only report it together with the sizes
// of all containers, which takes long. Then layers that images share count once for each image.
func (s *Service) used(ctx context.Context) (int64, error) {
	if s.client.Supports(docker.DiskUsageOfImages) {
		usage, err := s.client.DiskUsage(ctx, client.DiskUsageOptions{Images: true})
		return usage.Images.TotalSize, docker.Error(err)
	}
	listed, err := s.client.ImageList(ctx, client.ImageListOptions{})
	return sum(listed.Items), docker.Error(err)
}

func sum(all []image.Summary) (bytes int64) {
	for _, i := range all {
		bytes += i.Size
	}
	return bytes
}

// isID reports whether a name is the ID of an image.
func isID(name string) bool { return strings.HasPrefix(name, "sha256:") }

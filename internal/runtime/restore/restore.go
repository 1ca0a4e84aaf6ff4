package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	metadata "github.com/checkpoint-restore/checkpointctl/lib"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// label marks the images that are checkpoints, in containerd's image store.
const label = "run.berth/checkpoint"

// Restorer prepares containers of checkpoint images.
type Restorer struct {
	client *containerd.Client
	dir    string
}

// New returns a Restorer that keeps checkpoints in a directory. New removes the checkpoints that a killed runtime was
// unpacking.
func New(client *containerd.Client, dir string) (*Restorer, error) {
	unfinished, err := filepath.Glob(filepath.Join(dir, unpacking+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range unfinished {
		if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("remove a checkpoint that was being unpacked: %w", err)
		}
	}
	return &Restorer{client, dir}, nil
}

// unpacking begins the names of directories that have no container yet.
const unpacking = ".unpacking-"

// Mark makes a loaded image a checkpoint if its manifest says that it is one.
func Mark(ctx context.Context, client *containerd.Client, name string) error {
	image, err := client.GetImage(ctx, name)
	if err != nil {
		return err
	}
	manifest, err := images.Manifest(ctx, client.ContentStore(), image.Target(), image.Platform())
	if err != nil {
		return err
	}
	if manifest.Annotations[metadata.CheckpointAnnotationName] == "" {
		return nil
	}
	record := image.Metadata()
	record.Labels = map[string]string{label: "true"}
	_, err = client.ImageService().Update(ctx, record, "labels."+label)
	return err
}

// Prepared is the checkpoint of a container that is being created.
type Prepared struct{ path string }

// Before prepares the creation of a container. If its image is a checkpoint, Before unpacks that and replaces the image
// in the request. Otherwise it returns nil.
func (r *Restorer) Before(ctx context.Context, req any) (*Prepared, error) {
	if _, checkpoint := req.(*runtimeapi.CheckpointContainerRequest); checkpoint {
		return nil, findCRIU()
	}
	create, ok := req.(*runtimeapi.CreateContainerRequest)
	if !ok {
		return nil, nil
	}
	image, err := r.checkpoint(ctx, create.GetConfig().GetImage().GetImage())
	if err != nil || image == nil {
		return nil, err
	}
	if err := findCRIU(); err != nil {
		return nil, err
	}
	p, base, err := r.unpack(ctx, image)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "restore container %s from image %s: %v",
			create.GetConfig().GetMetadata().GetName(), image.Name(), err)
	}
	create.Config.Image.Image = base
	return p, nil
}

// program is the program that runc uses for checkpoints, and finds in PATH.
const program = "criu"

// findCRIU returns an error if this machine lacks CRIU. containerd would remember the lack until the next start.
func findCRIU() error {
	if _, err := exec.LookPath(program); err != nil {
		return status.Errorf(codes.FailedPrecondition, "checkpoints need the program %s, which this machine does not "+
			"have in PATH; next: install the package criu", program)
	}
	return nil
}

// checkpoint returns the image of that name or ID if it is a checkpoint, or nil.
func (r *Restorer) checkpoint(ctx context.Context, name string) (containerd.Image, error) {
	marked, err := r.client.ImageService().List(ctx, `labels."`+label+`"==true`)
	if err != nil || len(marked) == 0 {
		return nil, err
	}
	image, err := r.client.GetImage(ctx, name)
	if errdefs.IsNotFound(err) {
		return nil, nil // the CRI plugin says so
	}
	if err != nil {
		return nil, err
	}
	for _, m := range marked {
		if m.Target.Digest == image.Target().Digest {
			return containerd.NewImage(r.client, m), nil
		}
	}
	return nil, nil
}

// unpack unpacks a checkpoint. It returns the name of the image that the container was made of.
func (r *Restorer) unpack(ctx context.Context, image containerd.Image) (p *Prepared, base string, err error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp(r.dir, unpacking)
	if err != nil {
		return nil, "", err
	}
	p = &Prepared{dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.drop())
		}
	}()
	if err := r.extract(ctx, image, dir); err != nil {
		return nil, "", fmt.Errorf("unpack the checkpoint: %w", err)
	}
	for _, need := range []string{metadata.ConfigDumpFile, metadata.CheckpointDirectory} {
		if _, err := os.Stat(filepath.Join(dir, need)); err != nil {
			return nil, "", fmt.Errorf("the checkpoint is incomplete: %w", err)
		}
	}
	base, err = r.base(ctx, filepath.Join(dir, metadata.ConfigDumpFile))
	return p, base, err
}

func (r *Restorer) extract(ctx context.Context, image containerd.Image, dir string) error {
	store := r.client.ContentStore()
	manifest, err := images.Manifest(ctx, store, image.Target(), image.Platform())
	if err != nil {
		return err
	}
	for _, layer := range manifest.Layers {
		at, err := store.ReaderAt(ctx, layer)
		if err != nil {
			return err
		}
		err = extractLayer(ctx, content.NewReader(at), dir)
		if err := errors.Join(err, at.Close()); err != nil {
			return err
		}
	}
	return nil
}

// base returns the name or the ID of the image that a checkpointed container was made of. The image must be present.
func (r *Restorer) base(ctx context.Context, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var config metadata.ContainerConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("read %s of the checkpoint: %w", metadata.ConfigDumpFile, err)
	}
	for _, name := range []string{config.RootfsImageRef, config.RootfsImageName, config.RootfsImage} {
		if name == "" {
			continue
		}
		if _, err := r.client.GetImage(ctx, name); err == nil {
			return name, nil
		} else if !errdefs.IsNotFound(err) {
			return "", err
		}
	}
	return "", fmt.Errorf("the container's image %s is not on this node; next: berth image pull "+
		"%s", config.RootfsImageName, config.RootfsImageName)
}

// After ends a call. It returns the error of the call, or why the checkpoint cannot be used.
func (r *Restorer) After(p *Prepared, req, answer any, failed error) error {
	switch req := req.(type) {
	case *runtimeapi.CreateContainerRequest:
		created, ok := answer.(*runtimeapi.CreateContainerResponse)
		switch {
		case p == nil:
		case failed != nil || !ok:
			return errors.Join(failed, p.drop())
		default:
			// The start of the container finds the checkpoint under its ID.
			return os.Rename(p.path, r.of(created.GetContainerId()))
		}
	case *runtimeapi.StartContainerRequest:
		return errors.Join(failed, os.RemoveAll(r.of(req.GetContainerId())))
	case *runtimeapi.RemoveContainerRequest:
		if failed == nil {
			return os.RemoveAll(r.of(req.GetContainerId()))
		}
	}
	return failed
}

// of returns the directory of the checkpoint of a container.
func (r *Restorer) of(container string) string { return filepath.Join(r.dir, filepath.Base(container)) }

// drop removes the checkpoint of a container that was not created.
func (p *Prepared) drop() error { return os.RemoveAll(p.path) }

package records

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
)

// List is the CRI plugin's list of images. UpdateImage reads one again.
type List interface {
	UpdateImage(ctx context.Context, name string) error
}

// Verify forgets the images of ctx's namespace whose content is not there, if Open has found a loss of power. Nothing
// starts from such an image, and a pull with the policy IfNotPresent would not replace it.
func (r *Records) Verify(ctx context.Context, client *containerd.Client, list List) error {
	if !r.restored {
		return nil
	}
	all, err := client.ImageService().List(ctx)
	if err != nil {
		return fmt.Errorf("list images after a loss of power: %w", err)
	}
	for _, image := range all {
		available, _, _, missing, err := images.Check(ctx, client.ContentStore(), image.Target, platforms.Default())
		if err != nil {
			return fmt.Errorf("look for the content of image %s after a loss of power: %w", image.Name, err)
		}
		if available && len(missing) == 0 {
			continue
		}
		err = errors.Join(client.ImageService().Delete(ctx, image.Name), list.UpdateImage(ctx, image.Name))
		if err != nil {
			return fmt.Errorf("forget image %s, whose content is lost: %w", image.Name, err)
		}
		r.log.Warn("image forgotten, its content did not survive a loss of power", "image", image.Name, "next",
			"pull or load it again")
	}
	return nil
}

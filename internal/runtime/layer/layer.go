package layer

import (
	"context"
	"fmt"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"

	"github.com/berth-run/berth/internal/base/diskusage"
)

// Usage measures the writable layer of a container now.
func Usage(ctx context.Context, client *containerd.Client, snapshotter, container string) (diskusage.Usage, error) {
	used, err := client.SnapshotService(snapshotter).Usage(ctx, container)
	return diskusage.Usage{Bytes: used.Size, Inodes: used.Inodes}, err
}

// Free starts a garbage collection and waits until it has removed the files of all unused layers, or until ctx ends.
// The collection goes on after the end of ctx.
func Free(ctx context.Context, client *containerd.Client) error {
	done := make(chan error, 1)
	// containerd waits for a collection in progress without regard of ctx.
	go func() { done <- collect(context.WithoutCancel(ctx), client.LeasesService()) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for a garbage collection: %w", context.Cause(ctx))
	}
}

// collect collects garbage. Only the deletion of a lease or of an image can ask for that.
func collect(ctx context.Context, manager leases.Manager) error {
	const forgotten = time.Minute // if this process ends before the deletion
	lease, err := manager.Create(ctx, leases.WithRandomID(), leases.WithExpiration(forgotten))
	if err != nil {
		return fmt.Errorf("create lease: %w", err)
	}
	if err := manager.Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		return fmt.Errorf("collect garbage: %w", err)
	}
	return nil
}

package unpack

import (
	"context"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/diff/apply"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/diff/walking"
	"github.com/containerd/platforms"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// RegisterSynced registers containerd's plugin for layers as one that syncs each layer once it is unpacked. containerd
// records the layer in its database, which is synced, and never unpacks it again. Without the sync a power cut would
// leave empty files in it, and no container of the image could start any more.
func RegisterSynced() {
	registry.Register(&plugin.Registration{
		Type:     plugins.DiffPlugin,
		ID:       "walking", // the name that containerd's services look for
		Requires: []plugin.Type{plugins.MetadataPlugin, plugins.MountManagerPlugin},
		InitFn: func(ic *plugin.InitContext) (any, error) {
			database, err := ic.GetSingle(plugins.MetadataPlugin)
			if err != nil {
				return nil, err
			}
			mounts, err := ic.GetSingle(plugins.MountManagerPlugin)
			if err != nil {
				return nil, err
			}
			ic.Meta.Platforms = append(ic.Meta.Platforms, platforms.DefaultSpec())
			content := database.(*metadata.DB).ContentStore()
			return syncedDiff{walking.NewWalkingDiff(content),
				apply.NewFileSystemApplierWithMountManager(content, mounts.(mount.Manager))}, nil
		},
	})
}

type syncedDiff struct {
	diff.Comparer
	applier diff.Applier
}

// Apply implements diff.Applier.
func (l syncedDiff) Apply(ctx context.Context, layer v1.Descriptor, mounts []mount.Mount,
	opts ...diff.ApplyOpt) (v1.Descriptor, error) {
	return l.applier.Apply(ctx, layer, mounts, append(opts, diff.WithSyncFs(true))...)
}

package volumes

import (
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent/pressure"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/image"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/attached"
	"github.com/berth-run/berth/internal/pod/steps/volume/downwardapi"
	"github.com/berth-run/berth/internal/pod/steps/volume/hostpath"
	imagevolume "github.com/berth-run/berth/internal/pod/steps/volume/image"
	"github.com/berth-run/berth/internal/pod/steps/volume/keyvalue"
	"github.com/berth-run/berth/internal/pod/steps/volume/local"
	"github.com/berth-run/berth/internal/pod/steps/volume/nfs"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
	"github.com/berth-run/berth/internal/pod/steps/volume/projected"
	"github.com/berth-run/berth/internal/record/event"
)

// Options of New.
type Options struct {
	Config *config.Config
	Claims volume.Claims
	// Drivers are the kinds whose drivers are programs of others.
	Drivers []volume.Kind
	// Objects are the ConfigMaps, Secrets and other objects that volumes name.
	Objects *object.Objects
	Events  event.Sink
	Log     *slog.Logger

	// Only mounting needs the fields below.

	// LocalSynced is closed when all objects of manifests are known.
	LocalSynced <-chan struct{}
	// Allocatable lists the resources for all pods of the node.
	Allocatable corev1.ResourceList
	Images      *image.Images
	// Issuer is nil without a cluster. Attachments is nil unless a controller of the cluster attaches volumes.
	Issuer      projected.Issuer
	Attachments volume.Attachments
}

// New makes the part that mounts volumes, and the part that keeps the files of ConfigMap, Secret and similar volumes up
// to date. It reads only whether the file system enforces the limits of emptyDir volumes.
func New(o Options) (*volume.Volumes, *payload.Volumes) {
	c := o.Config
	emptyDir := pressure.EmptyDir(c.RootDir, c.Node.Storage, o.Allocatable, o.Log)
	contents := payload.New(payload.Config{Objects: o.Objects, Synced: o.LocalSynced, EmptyDir: emptyDir,
		Events: o.Events, Log: o.Log})
	return volume.New(volume.Config{Root: c.RootDir, Events: o.Events, Claims: o.Claims,
		Kinds: slices.Concat(o.Drivers, []volume.Kind{
			emptyDir, hostpath.Kind{}, local.Kind{}, nfs.Kind{Log: o.Log}, imagevolume.Kind{Images: o.Images},
			contents.Disk(keyvalue.ConfigMap), contents.Memory(keyvalue.Secret),
			contents.Memory(downwardapi.Source{Allocatable: o.Allocatable}),
			contents.Memory(projected.Source{Allocatable: o.Allocatable, Issuer: o.Issuer}),
		}, attached.Kinds(attached.Options{Root: c.RootDir, FlexVolumes: c.Pods.FlexVolumes, Node: c.NodeName,
			Secrets: o.Objects, Attachments: o.Attachments, Log: o.Log})),
	}), contents
}

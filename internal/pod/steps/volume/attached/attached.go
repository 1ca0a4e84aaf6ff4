package attached

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/fc"
	"github.com/berth-run/berth/internal/pod/steps/volume/flexvolume"
	"github.com/berth-run/berth/internal/pod/steps/volume/iscsi"
)

// secrets reads the Secrets that volumes name.
type secrets interface {
	Secret(namespace, name string) (*corev1.Secret, error)
}

// Options are the options of all kinds. Fields are required unless they say otherwise.
type Options struct {
	// Root is the agent's directory. FlexVolumes is the directory of the FlexVolume drivers. Node is this node's name.
	Root, FlexVolumes, Node string
	Secrets                 secrets
	// Attachments has the volumes that a controller of the cluster attaches. nil: there is no such controller.
	Attachments volume.Attachments
	Log         *slog.Logger
}

// Kinds returns the kinds. It does no I/O.
func Kinds(o Options) []volume.Kind {
	return []volume.Kind{
		flexvolume.New(flexvolume.Options{Root: o.Root, Dir: o.FlexVolumes, Node: o.Node, Secrets: o.Secrets,
			Attachments: o.Attachments}),
		iscsi.New(iscsi.Options{Root: o.Root, Secrets: o.Secrets, Attachments: o.Attachments, Log: o.Log}),
		fc.New(fc.Options{Root: o.Root, Attachments: o.Attachments}),
	}
}

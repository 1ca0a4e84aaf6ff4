package iscsi

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/disk"
	"github.com/berth-run/berth/internal/pod/steps/volume/scsi"
)

// secrets reads the Secrets that volumes name. The error for a Secret that does not exist is an *object.Missing or
// *object.Unknown: the volume then waits for it.
type secrets interface {
	Secret(namespace, name string) (*corev1.Secret, error)
}

// Options of a Kind. Fields are required unless they say otherwise.
type Options struct {
	// Root is the agent's directory.
	Root    string
	Secrets secrets
	// Attachments has the volumes that a controller of the cluster attaches. nil: nothing waits for a controller.
	Attachments volume.Attachments
	// Machine has the kernel's files. The zero value is this machine.
	Machine scsi.Machine
	Log     *slog.Logger
}

// Kind serves iscsi volumes. Make it with New.
type Kind struct {
	o         Options
	formatter disk.Formatter
	targets   lock.Keyed // by the target's name
}

// New makes a Kind. It does no I/O.
func New(o Options) *Kind { return &Kind{o: o} }

// Names of directories are the kubelet's.
const (
	plugin  = "iscsi"
	dirName = "kubernetes.io~" + plugin
)

// Dir is the kubelet's name of the directory for iSCSI volumes in a pod's directory.
func (*Kind) Dir() string { return dirName }

// TargetName is the name of the PersistentVolume, or of the pod's own volume, as under the kubelet.
func (*Kind) TargetName(r volume.Request) string { return r.SpecName() }

// Serves reports whether the volume is an iSCSI volume.
func (*Kind) Serves(v *corev1.Volume) bool { return v.ISCSI != nil }

// ServesPersistent reports whether the PersistentVolume is an iSCSI volume.
func (*Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.ISCSI != nil }

// Features says that the pod's fsGroup is applied, and that a pod may have the disk as a device.
func (*Kind) Features(r volume.Request) volume.Features {
	return volume.Features{FSGroup: true, Block: true, ReadOnly: r.Persistent == nil && r.Volume.ISCSI.ReadOnly}
}

// mountDir is where the disk is mounted once for the node.
func (k *Kind) mountDir(id identity) string {
	return filepath.Join(k.o.Root, "plugins", "kubernetes.io", plugin, id.dir())
}

// Publish gives the pod the mounted disk, or the disk itself.
func (k *Kind) Publish(_ context.Context, r volume.Request) (string, error) {
	s, err := sourceOf(r)
	if err != nil {
		return "", err
	}
	if r.Block {
		device := k.find(identityOf(s, true))
		if device == "" {
			return "", errors.New("the disk is gone: its session has ended")
		}
		return device, volume.Link(device, r.Target)
	}
	return r.Target, volume.Bind(k.mountDir(identityOf(s, false)), r.Target)
}

// find returns the device of a disk: the multipath device if it has one. It is "" if there is no session, or if the
// kernel has not found the disk.
func (k *Kind) find(id identity) string {
	found := ""
	for _, l := range k.links(id.IQN) {
		if d := k.disk(l, id.LUN); d != "" && l.iface == id.Iface {
			found = d
			if at := k.o.Machine.Multipath(d); at != "" {
				return at
			}
		}
	}
	return found
}

// Unpublish undoes Publish.
func (*Kind) Unpublish(_ context.Context, target string) error { return volume.Unplace(target) }

// secret returns the content of the volume's Secret, with the names and passwords of CHAP.
func (k *Kind) secret(s source) (map[string][]byte, error) {
	if !s.discoveryCHAP && !s.sessionCHAP {
		return nil, nil
	}
	if s.secret == nil || s.secret.Name == "" {
		return nil, errors.New("the volume asks for CHAP and names no Secret: set secretRef")
	}
	found, err := k.o.Secrets.Secret(s.secret.Namespace, s.secret.Name)
	if err != nil {
		return nil, err
	}
	return found.Data, nil
}

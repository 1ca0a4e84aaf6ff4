package flexvolume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/disk"
)

// secrets reads the Secrets that volumes name. The error for a Secret that does not exist is an *object.Missing or
// *object.Unknown: the volume then waits for it.
type secrets interface {
	Secret(namespace, name string) (*corev1.Secret, error)
}

// Options of a Kind. Fields are required unless they say otherwise.
type Options struct {
	// Root is the agent's directory. Dir is the directory of the drivers.
	Root, Dir string
	// Node is this node's name.
	Node    string
	Secrets secrets
	// Attachments has the volumes that a controller of the cluster attaches. nil: the agent calls the driver to attach.
	Attachments volume.Attachments
}

// Kind serves flexVolume volumes. Make it with New.
type Kind struct {
	o         Options
	drivers   drivers
	formatter disk.Formatter
}

// New makes a Kind. It does no I/O.
func New(o Options) *Kind { return &Kind{o: o, drivers: drivers{dir: o.Dir}} }

// Dir is the name of the directory for what the pods share of a volume.
func (*Kind) Dir() string { return "kubernetes.io~flexvolume" }

// DirOf is the name of the directory for volumes of the driver in a pod's directory.
func (*Kind) DirOf(r volume.Request) string { return dirOf(sourceOf(r).driver) }

// OwnsDir reports whether a directory in a pod's directory belongs to a driver: all names but Kubernetes' own do.
func (*Kind) OwnsDir(name string) bool { return !strings.HasPrefix(name, "kubernetes.io~") }

// TargetName is the name of the PersistentVolume, or of the pod's own volume. The kubelet names the volume's directory
// so.
func (*Kind) TargetName(r volume.Request) string { return sourceOf(r).name }

// Serves reports whether the volume is a flexVolume.
func (*Kind) Serves(v *corev1.Volume) bool { return v.FlexVolume != nil }

// ServesPersistent reports whether the PersistentVolume is a flexVolume.
func (*Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.FlexVolume != nil }

// Features returns the features that the driver's init has reported.
func (k *Kind) Features(r volume.Request) volume.Features {
	s := sourceOf(r)
	f := volume.Features{Remote: true, ReadOnly: r.Persistent == nil && s.readOnly}
	if d := k.drivers.cached(s.driver); d != nil {
		f.FSGroup, f.HostLabels = d.can.FSGroup, !d.can.Relabel
	}
	return f
}

// Publish mounts the volume for the pod through the driver. A driver without the call mount gets a bind mount of its
// device.
func (k *Kind) Publish(ctx context.Context, r volume.Request) (string, error) {
	s := sourceOf(r)
	d, err := k.drivers.get(ctx, s.driver)
	if err != nil {
		return "", err
	}
	if at, err := mount.At(r.Target); at != nil || err != nil {
		return r.Target, err
	}
	secret, err := k.secret(s)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(r.Target, 0o750); err != nil {
		return "", err
	}
	_, err = d.call(ctx, "mount", r.Target, encode(mountOptions(s, r.Pod, secret)))
	if errors.Is(err, errUnsupported) {
		err = k.bind(s, r)
	}
	if err != nil {
		_ = os.Remove(r.Target) // the driver may have mounted something there, and Unpublish calls it
		return "", err
	}
	return r.Target, nil
}

// bind mounts the driver's device on the pod's directory.
func (k *Kind) bind(s source, r volume.Request) error {
	device := k.devicePath(s.driver, s.name)
	if err := unix.Mount(device, r.Target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s, because FlexVolume driver %s has no call mount: %w", device, s.driver, err)
	}
	return nil
}

// secret returns the content of the volume's Secret. As under the kubelet, its type must be the name of the driver, so
// that a pod's author cannot give other Secrets to a driver.
func (k *Kind) secret(s source) (map[string][]byte, error) {
	if s.secret == nil || s.secret.Name == "" {
		return nil, nil
	}
	found, err := k.o.Secrets.Secret(s.secret.Namespace, s.secret.Name)
	if err != nil {
		return nil, err
	}
	if string(found.Type) != s.driver {
		return nil, fmt.Errorf("use Secret %s/%s: its type is %q, and a FlexVolume driver gets only Secrets of its "+
			"own name: set the type to %s", s.secret.Namespace, s.secret.Name, found.Type, s.driver)
	}
	return found.Data, nil
}

// Unpublish unmounts the volume through the driver.
func (k *Kind) Unpublish(ctx context.Context, target string) error {
	if _, err := os.Lstat(target); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	name := strings.ReplaceAll(filepath.Base(filepath.Dir(target)), "~", "/")
	d, err := k.drivers.get(ctx, name)
	if err != nil {
		return err
	}
	_, err = d.call(ctx, "unmount", target)
	if errors.Is(err, errUnsupported) {
		err = volume.Unmount(target)
	}
	if err != nil {
		return err
	}
	return safepath.IgnoreMissing(os.Remove(target))
}

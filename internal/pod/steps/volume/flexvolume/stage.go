package flexvolume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/disk"
)

// identity identifies a volume to its driver. Its JSON is the StageID.
type identity struct {
	Driver string `json:"driver"`
	Name   string `json:"name"`
}

func (id identity) String() string {
	text, _ := json.Marshal(id) // a struct of strings always has JSON
	return string(text)
}

// unique is the volume's name in a Node's status.
func (id identity) unique() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(id.Driver + "/" + id.Name)
}

// maxFile is the largest file of a shared part in bytes.
const maxFile = 1 << 20

// optionsFile is the name of the file with the options of an attached volume.
const optionsFile = "options"

// devicePath is where the device of a volume is mounted once for the node.
func (k *Kind) devicePath(driver, name string) string {
	return filepath.Join(k.o.Root, "plugins", "kubernetes.io", "flexvolume", driver, "mounts", name)
}

// StageID identifies the volume by driver and name, as the kubelet does.
func (*Kind) StageID(r volume.Request) string {
	s := sourceOf(r)
	return identity{s.driver, s.name}.String()
}

// Stage attaches the volume and mounts its device, if the driver can attach volumes. The stage directory of package
// volume stays empty: the device is mounted in the kubelet's place.
func (k *Kind) Stage(ctx context.Context, r volume.Request) error {
	s := sourceOf(r)
	d, err := k.drivers.get(ctx, s.driver)
	if err != nil || !d.can.Attach {
		return err
	}
	if err := safepath.Name(s.name); err != nil {
		return err
	}
	path, options := k.devicePath(s.driver, s.name), encode(deviceOptions(s))
	at, err := mount.At(path)
	if err != nil {
		return err
	}
	if err := own(filepath.Join(filepath.Dir(r.Stage), optionsFile), options, at != nil); err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	if at != nil && k.o.Attachments == nil {
		return nil
	}
	device, err := k.attach(ctx, d, r, options)
	if err != nil || at != nil {
		return err
	}
	a, err := d.call(ctx, "waitforattach", device, options)
	switch {
	case err == nil:
		device = a.Device
	case !errors.Is(err, errUnsupported):
		return err
	}
	_, err = d.call(ctx, "mountdevice", path, device, options)
	if !errors.Is(err, errUnsupported) || device == "" {
		return ignoreUnsupported(err)
	}
	return k.formatter.Mount(ctx, disk.Disk{Device: device, Target: path, FSType: s.fsType, ReadOnly: s.readOnly})
}

// own writes the options of an attached volume. A name stands for one volume on a node, so that other options are an
// error while its device is mounted: the second pod would get the data of the first.
func own(file, options string, isMounted bool) error {
	text, err := safepath.ReadFile(file, 1, maxFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil && isMounted && string(text) != options {
		return fmt.Errorf("another pod uses a volume of this name and driver with other options: rename the volume")
	}
	return checkpoint.Replace(file, []byte(options))
}

// attach returns the device of the volume, after a controller or the driver has attached it.
func (k *Kind) attach(ctx context.Context, d *driver, r volume.Request, options string) (device string, err error) {
	if k.o.Attachments != nil {
		return k.o.Attachments.Attached(ctx, identity{d.name, sourceOf(r).name}.unique(), r.Stage)
	}
	a, err := d.call(ctx, "attach", options, k.o.Node)
	return a.Device, ignoreUnsupported(err)
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, errUnsupported) {
		return nil
	}
	return err
}

// Unstage unmounts the device through the driver and detaches the volume. Without the directory of the device, the
// driver was never asked to attach it.
func (k *Kind) Unstage(ctx context.Context, stage string) error {
	text, err := safepath.ReadFile(filepath.Join(filepath.Dir(stage), "id"), 1, maxFile)
	if err != nil {
		return safepath.IgnoreMissing(err)
	}
	var id identity
	if err := json.Unmarshal(text, &id); err != nil {
		return fmt.Errorf("read the shared part of a FlexVolume from %s: %w", stage, err)
	}
	path := k.devicePath(id.Driver, id.Name)
	// Stage refuses names that lead to another directory, so that such a volume has no device.
	isValid := errors.Join(checkDriver(id.Driver), safepath.Name(id.Name)) == nil
	if _, err := os.Lstat(path); err == nil && isValid {
		if err := k.detach(ctx, id, path); err != nil {
			return err
		}
	}
	if k.o.Attachments != nil {
		if err := k.o.Attachments.Release(id.unique(), stage); err != nil {
			return err
		}
	}
	return checkpoint.Remove(filepath.Join(filepath.Dir(stage), optionsFile))
}

func (k *Kind) detach(ctx context.Context, id identity, path string) error {
	d, err := k.drivers.get(ctx, id.Driver)
	if err != nil {
		return err
	}
	at, err := mount.At(path)
	if err != nil {
		return err
	}
	if at != nil {
		_, err := d.call(ctx, "unmountdevice", path)
		if errors.Is(err, errUnsupported) {
			err = volume.Unmount(path)
		}
		if err != nil {
			return err
		}
	}
	if k.o.Attachments == nil {
		if _, err := d.call(ctx, "detach", id.Name, k.o.Node); ignoreUnsupported(err) != nil {
			return err
		}
	}
	return safepath.IgnoreMissing(os.Remove(path))
}

// Uses returns the volumes of pods whose device is mounted. A kubelet mounts them in the same places.
func (k *Kind) Uses() (all []volume.Use, err error) {
	found, _ := filepath.Glob(filepath.Join(k.o.Root, "pods", "*", "volumes", "*", "*")) // the pattern is valid
	for _, target := range found {
		dir := filepath.Base(filepath.Dir(target))
		id := identity{strings.ReplaceAll(dir, "~", "/"), filepath.Base(target)}
		if !k.OwnsDir(dir) || checkDriver(id.Driver) != nil {
			continue
		}
		if _, err := os.Lstat(k.devicePath(id.Driver, id.Name)); err != nil {
			continue // the driver does not attach volumes
		}
		uid := types.UID(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(target)))))
		all = append(all, volume.Use{StageID: id.String(), UID: uid, Volume: id.Name})
	}
	return all, nil
}

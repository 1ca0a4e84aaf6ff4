package fc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/disk"
	"github.com/berth-run/berth/internal/pod/steps/volume/scsi"
)

// Names of directories are the kubelet's.
const (
	plugin  = "fc"
	dirName = "kubernetes.io~" + plugin
)

// maxFile is the largest file of a shared part in bytes.
const maxFile = 1 << 16

// Options of a Kind. Fields are required unless they say otherwise.
type Options struct {
	// Root is the agent's directory.
	Root string
	// Attachments has the volumes that a controller of the cluster attaches. nil: nothing waits for a controller.
	Attachments volume.Attachments
	// Machine has the kernel's files. The zero value is this machine.
	Machine scsi.Machine
}

// Kind serves fc volumes. Make it with New.
type Kind struct {
	o         Options
	formatter disk.Formatter
}

// New makes a Kind. It does no I/O.
func New(o Options) *Kind { return &Kind{o: o} }

// Dir is the kubelet's name of the directory for Fibre Channel volumes in a pod's directory.
func (*Kind) Dir() string { return dirName }

// TargetName is the name of the PersistentVolume, or of the pod's own volume, as under the kubelet.
func (*Kind) TargetName(r volume.Request) string { return r.SpecName() }

// Serves reports whether the volume is a Fibre Channel volume.
func (*Kind) Serves(v *corev1.Volume) bool { return v.FC != nil }

// ServesPersistent reports whether the PersistentVolume is a Fibre Channel volume.
func (*Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.FC != nil }

// Features says that the pod's fsGroup is applied, and that a pod may have the disk as a device.
func (*Kind) Features(r volume.Request) volume.Features {
	return volume.Features{FSGroup: true, Block: true, ReadOnly: r.Persistent == nil && r.Volume.FC.ReadOnly}
}

// mountDir is where the disk is mounted once for the node.
func (k *Kind) mountDir(id identity) string {
	return filepath.Join(k.o.Root, "plugins", "kubernetes.io", plugin, id.Name)
}

// diskFile is the name of the file that says which disk a shared part has. It is in the part's directory.
const diskFile = "disk"

// StageID identifies the disk.
func (*Kind) StageID(r volume.Request) string {
	s, err := sourceOf(r)
	if err != nil {
		return "" // Publish returns the error
	}
	return s.identity(r.Block).String()
}

// Stage finds the disk and mounts it once for the node. The stage directory of package volume stays empty: the disk is
// mounted in the kubelet's place.
func (k *Kind) Stage(ctx context.Context, r volume.Request) error {
	s, err := sourceOf(r)
	if err != nil {
		return err
	}
	if k.o.Attachments != nil {
		if _, err := k.o.Attachments.Attached(ctx, s.unique(), r.Stage); err != nil {
			return err
		}
	}
	path := k.mountDir(s.identity(false))
	at, err := mount.At(path)
	if err != nil {
		return err
	}
	var device string
	if at != nil && !r.Block {
		device = at.Source
	} else if device, err = k.search(ctx, s); err != nil {
		return err
	}
	if err := save(r.Stage, state{WWNs: s.wwns, LUN: s.lun, WWIDs: s.wwids}); err != nil || r.Block {
		return err
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	return k.formatter.Mount(ctx,
		disk.Disk{Device: device, Target: path, FSType: s.fsType, Options: s.options, ReadOnly: s.readOnly})
}

// search finds the disk, after a scan if it is not there.
func (k *Kind) search(ctx context.Context, s source) (string, error) {
	device, err := k.find(s)
	if device != "" || err != nil {
		return device, err
	}
	if err := k.scan(); err != nil {
		return "", err
	}
	device, err = scsi.Await(ctx, func() (string, error) { return k.find(s) })
	if device == "" && err == nil {
		err = fmt.Errorf("no Fibre Channel disk %s: no link in %s leads to it", s.identity(false).Name, k.linksOf(s))
	}
	return device, err
}

// linksOf is the directory with the links that lead to the disk.
func (k *Kind) linksOf(s source) string {
	if len(s.wwns) > 0 {
		return k.o.Machine.InDev("disk/by-path")
	}
	return k.o.Machine.InDev("disk/by-id")
}

// find returns the disk: the multipath device if it has one, and "" if it is not there.
func (k *Kind) find(s source) (string, error) {
	dir := k.linksOf(s)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", safepath.IgnoreMissing(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	found := ""
	for _, name := range s.links(names) {
		device, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err != nil {
			continue // the disk is gone, and udev removes the link
		}
		if joined := k.o.Machine.Multipath(device); joined != "" {
			return joined, nil
		}
		found = device
	}
	return found, nil
}

// scan lets the kernel look for disks at the Fibre Channel adapters. Without any, it looks at all SCSI hosts: some
// adapters do not say what they are.
func (k *Kind) scan() error {
	hosts, _ := filepath.Glob(k.o.Machine.InSys("class/fc_host/host*")) // the patterns are valid
	if len(hosts) == 0 {
		hosts, _ = filepath.Glob(k.o.Machine.InSys("class/scsi_host/host*"))
	}
	var errs []error
	for _, host := range hosts {
		errs = append(errs, k.o.Machine.Scan(filepath.Base(host), "- - -"))
	}
	return errors.Join(errs...)
}

// Publish gives the pod the mounted disk, or the disk itself.
func (k *Kind) Publish(_ context.Context, r volume.Request) (string, error) {
	s, err := sourceOf(r)
	if err != nil {
		return "", err
	}
	if !r.Block {
		return r.Target, volume.Bind(k.mountDir(s.identity(false)), r.Target)
	}
	device, err := k.find(s)
	if device == "" && err == nil {
		err = fmt.Errorf("the Fibre Channel disk %s is gone", s.identity(true).Name)
	}
	if err != nil {
		return "", err
	}
	return device, volume.Link(device, r.Target)
}

// Unpublish undoes Publish.
func (*Kind) Unpublish(_ context.Context, target string) error { return volume.Unplace(target) }

// Unstage unmounts the disk and removes it from the machine, so that the storage network can take it away.
func (k *Kind) Unstage(ctx context.Context, stage string) error {
	part := filepath.Dir(stage)
	text, err := safepath.ReadFile(filepath.Join(part, "id"), 1, maxFile)
	if err != nil {
		return safepath.IgnoreMissing(err)
	}
	var id identity
	if err = json.Unmarshal(text, &id); err == nil {
		err = safepath.Name(id.Name)
	}
	if err != nil {
		return fmt.Errorf("read the shared part of a Fibre Channel volume from %s: %w", part, err)
	}
	own, err := load(stage)
	if err != nil {
		return err
	}
	// A name such as /dev/sdb may mean another disk after a reboot, so the agent stores no such name.
	device, err := k.find(own)
	if err != nil {
		return err
	}
	if !id.Block {
		if device, err = unmount(k.mountDir(id), device); err != nil {
			return err
		}
	}
	if device != "" {
		if err := k.o.Machine.Remove(ctx, device); err != nil {
			return err
		}
	}
	if k.o.Attachments != nil {
		err := k.o.Attachments.Release("", stage)
		if err == nil && len(own.wwns) == 0 && len(own.wwids) == 0 { // a kubelet has mounted it
			err = k.o.Attachments.Release(id.adopted(), stage)
		}
		if err != nil {
			return err
		}
	}
	return checkpoint.Remove(filepath.Join(part, diskFile))
}

// unmount unmounts the disk and returns its device: the device of the mount, or found if nothing is mounted.
func unmount(path, found string) (device string, err error) {
	at, err := mount.At(path)
	if err != nil {
		return "", err
	}
	if at != nil {
		found = at.Source
	}
	if err := volume.Unmount(path); err != nil {
		return "", err
	}
	return found, safepath.IgnoreMissing(os.Remove(path))
}

// Uses returns the volumes of pods whose disk is mounted. A kubelet mounts them in the same places.
func (k *Kind) Uses() ([]volume.Use, error) {
	return volume.BoundUses(k.o.Root, plugin, func(dir string) (string, bool) {
		return identity{Name: filepath.Base(dir)}.String(), true
	})
}

// state is the content of diskFile.
type state struct {
	WWNs  []string `json:",omitempty"`
	LUN   string   `json:",omitempty"`
	WWIDs []string `json:",omitempty"`
}

func save(stage string, s state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return checkpoint.Replace(filepath.Join(filepath.Dir(stage), diskFile), text)
}

// load returns the names of the disk of a shared part. A shared part that a kubelet has set up has none.
func load(stage string) (source, error) {
	file := filepath.Join(filepath.Dir(stage), diskFile)
	text, err := safepath.ReadFile(file, 1, maxFile)
	if err != nil {
		return source{}, safepath.IgnoreMissing(err)
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return source{}, fmt.Errorf("read %s: %w", file, err)
	}
	return source{wwns: s.WWNs, lun: s.LUN, wwids: s.WWIDs}, nil
}

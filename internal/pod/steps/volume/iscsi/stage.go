package iscsi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/moby/sys/mountinfo"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/disk"
	"github.com/berth-run/berth/internal/pod/steps/volume/scsi"
)

// Names of files. recordFile is in the directory of the shared part. kubeletFile is below the mount of the disk, where
// a kubelet that takes over reads it.
const (
	recordFile  = "session"
	kubeletFile = "iscsi.json"
)

// maxFile is the largest file of a shared part in bytes.
const maxFile = 1 << 16

// rounds is how often one Stage tries a portal. While the disk is missing, every scanEvery-th look asks the kernel for
// another scan.
const (
	rounds    = 2
	scanEvery = 10
)

// StageID identifies the disk, and the interface of its sessions.
func (*Kind) StageID(r volume.Request) string {
	s, err := sourceOf(r)
	if err != nil {
		return "" // Publish returns the error
	}
	return identityOf(s, r.Block).String()
}

// Stage logs in to the target and mounts the disk once for the node. The stage directory of package volume stays empty:
// the disk is mounted in the kubelet's place.
func (k *Kind) Stage(ctx context.Context, r volume.Request) error {
	s, err := sourceOf(r)
	if err != nil {
		return err
	}
	if k.o.Attachments != nil {
		if _, err := k.o.Attachments.Attached(ctx, unique(r), r.Stage); err != nil {
			return err
		}
	}
	unlock, err := k.targets.Lock(ctx, s.iqn)
	if err != nil {
		return err
	}
	defer unlock()
	id := identityOf(s, r.Block)
	path := k.mountDir(id)
	at, err := k.mounted(id, path)
	if err != nil {
		return err
	}
	own := record{VolName: s.name, Portals: s.portals, Iqn: s.iqn, Lun: id.LUN, Iface: id.Iface,
		InitiatorName: s.initiator}
	device := ""
	if at != nil {
		device = at.Source
	}
	if device, err = k.sessions(ctx, s, own, r.Stage, device); err != nil || r.Block {
		return err
	}
	if at == nil {
		if err := prepare(path, own); err != nil {
			return err
		}
	}
	return k.formatter.Mount(ctx,
		disk.Disk{Device: device, Target: path, FSType: s.fsType, Options: s.options, ReadOnly: s.readOnly})
}

// mounted returns the mount of a disk, or nil.
func (k *Kind) mounted(id identity, path string) (*mountinfo.Info, error) {
	if id.Block {
		return nil, nil
	}
	return mount.At(path)
}

// prepare makes the directory for the mount of a disk.
func prepare(path string, own record) error {
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	return write(filepath.Join(path, kubeletFile), own)
}

// sessions begins the sessions that a disk lacks, and returns its device. mounted is the device if the disk is mounted:
// then a kubelet may have begun its sessions.
func (k *Kind) sessions(ctx context.Context, s source, own record, stage, mounted string) (string, error) {
	before, known, err := load(stage)
	if err != nil {
		return "", err
	}
	others, err := k.others(s.iqn, stage)
	if err != nil {
		return "", err
	}
	before.Iface = own.Iface
	own.Begun = begin(s.portals, portalsOf(k.links(s.iqn), own.Iface), before, others)
	if !known && mounted != "" {
		own.Begun = s.portals
	}
	if err := save(stage, own); err != nil {
		return "", err
	}
	if mounted != "" {
		return mounted, nil
	}
	if s.initiator != "" {
		if err := makeIface(ctx, s); err != nil {
			return "", err
		}
	}
	return k.connect(ctx, s)
}

// connect logs in through each portal and waits for the disk. One portal that works is enough.
func (k *Kind) connect(ctx context.Context, s source) (string, error) {
	secret, err := k.secret(s)
	if err != nil {
		return "", err
	}
	lun := strconv.Itoa(int(s.lun))
	var failed error
	for range rounds {
		failed = nil
		for _, portal := range s.portals {
			if err := k.path(ctx, s, portal, lun, secret); err != nil {
				failed = errors.Join(failed, err)
			}
		}
		if failed == nil || ctx.Err() != nil {
			break
		}
	}
	id := identityOf(s, false)
	device := k.find(id)
	if device == "" {
		return "", cmp.Or(failed, context.Cause(ctx), errors.New("the disk is gone again: its session has ended"))
	}
	if failed != nil {
		k.o.Log.Warn("an iSCSI disk is used with fewer paths than its volume has portals", "volume", s.name, "err",
			failed)
	}
	if len(s.portals) == 1 {
		return device, nil
	}
	// The multipath daemon joins the paths soon after the last one has appeared.
	joined, err := scsi.Await(ctx, func() (string, error) { return k.o.Machine.Multipath(device), nil })
	if joined != "" {
		device = joined
	}
	return device, err
}

// path makes one path to a disk: a session through a portal, and the disk in it.
func (k *Kind) path(ctx context.Context, s source, portal, lun string, secret map[string][]byte) error {
	if !slices.Contains(portalsOf(k.links(s.iqn), s.iface()), portal) {
		if err := login(ctx, s, portal, secret); err != nil {
			return err
		}
	}
	tries := 0
	found, err := scsi.Await(ctx, func() (string, error) {
		tries++
		for _, l := range k.links(s.iqn) {
			if l.portal != portal || l.iface != s.iface() {
				continue
			}
			if found := k.disk(l, lun); found != "" {
				return found, nil
			}
			if tries%scanEvery == 1 {
				if err := k.o.Machine.Scan(l.host, "0 0 "+lun); err != nil {
					return "", err
				}
			}
		}
		return "", nil
	})
	if found == "" && err == nil {
		err = fmt.Errorf("target %s has no disk with LUN %s at portal %s", s.iqn, lun, portal)
	}
	return err
}

func portalsOf(links []link, iface string) []string {
	var all []string
	for _, l := range links {
		if l.iface == iface {
			all = append(all, l.portal)
		}
	}
	return all
}

// Unstage unmounts the disk, and ends the sessions that no other volume uses.
func (k *Kind) Unstage(ctx context.Context, stage string) error {
	part := filepath.Dir(stage)
	text, err := safepath.ReadFile(filepath.Join(part, "id"), 1, maxFile)
	if err != nil {
		return safepath.IgnoreMissing(err)
	}
	var id identity
	if err = json.Unmarshal(text, &id); err == nil {
		err = id.check()
	}
	if err != nil {
		return fmt.Errorf("read the shared part of an iSCSI volume from %s: %w", part, err)
	}
	unlock, err := k.targets.Lock(ctx, id.IQN)
	if err != nil {
		return err
	}
	defer unlock()
	path := k.mountDir(id)
	if !id.Block {
		if err := volume.Unmount(path); err != nil {
			return err
		}
	}
	own, known, err := load(stage)
	if err != nil {
		return err
	}
	if !known && !id.Block { // a kubelet's, and no pod of it was ever set up here
		if own, err = kubelets(path); err != nil {
			return err
		}
	}
	if err := k.leave(ctx, id, own, stage); err != nil {
		return err
	}
	if err := k.release(id, known, stage); err != nil {
		return err
	}
	if !id.Block {
		for _, file := range []string{filepath.Join(path, kubeletFile), path} {
			if err := safepath.IgnoreMissing(os.Remove(file)); err != nil {
				return err
			}
		}
	}
	return checkpoint.Remove(filepath.Join(part, recordFile))
}

// release lets the controller of the cluster detach the volume.
func (k *Kind) release(id identity, known bool, stage string) error {
	if k.o.Attachments == nil {
		return nil
	}
	errs := []error{k.o.Attachments.Release("", stage)}
	if !known {
		for _, name := range id.adopted() {
			errs = append(errs, k.o.Attachments.Release(name, stage))
		}
	}
	return errors.Join(errs...)
}

// kubelets returns the record that a kubelet has left below the mount of a disk. Without one, nothing is known of its
// sessions, and they stay.
func kubelets(path string) (own record, err error) {
	text, err := safepath.ReadFile(filepath.Join(path, kubeletFile), 1, maxFile)
	if err != nil {
		return own, safepath.IgnoreMissing(err)
	}
	if err := json.Unmarshal(text, &own); err != nil {
		return own, fmt.Errorf("read %s: %w", filepath.Join(path, kubeletFile), err)
	}
	own.Begun = own.Portals
	return own, nil
}

// leave ends what was begun for a volume.
func (k *Kind) leave(ctx context.Context, id identity, own record, stage string) error {
	others, err := k.others(id.IQN, stage)
	if err != nil {
		return err
	}
	w := end(own, others)
	for _, heir := range w.heirs {
		if err := write(heir.file, heir); err != nil {
			return err
		}
	}
	if w.removeDisk {
		for _, l := range k.links(id.IQN) {
			if d := k.disk(l, id.LUN); d != "" && l.iface == id.Iface {
				if err := k.o.Machine.Remove(ctx, d); err != nil {
					return err
				}
			}
		}
	}
	sessions := portalsOf(k.links(id.IQN), id.Iface)
	for _, portal := range w.logout {
		if err := logout(ctx, own, portal, slices.Contains(sessions, portal)); err != nil {
			return err
		}
	}
	if w.removeFace {
		return removeIface(ctx, own.Iface)
	}
	return nil
}

// others returns the records of all other volumes of a target on this node.
func (k *Kind) others(iqn, stage string) ([]record, error) {
	mine := filepath.Join(filepath.Dir(stage), recordFile)
	files, _ := filepath.Glob(filepath.Join(k.o.Root, "plugins", dirName, "*", recordFile)) // the pattern is valid
	var all []record
	for _, file := range files {
		if file == mine {
			continue
		}
		r, known, err := read(file)
		if err != nil {
			return nil, err
		}
		if r.file = file; known && r.Iqn == iqn {
			all = append(all, r)
		}
	}
	return all, nil
}

func load(stage string) (record, bool, error) {
	return read(filepath.Join(filepath.Dir(stage), recordFile))
}

func read(file string) (r record, known bool, err error) {
	text, err := safepath.ReadFile(file, 1, maxFile)
	if err != nil {
		return r, false, safepath.IgnoreMissing(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, false, fmt.Errorf("read %s: %w", file, err)
	}
	return r, true, nil
}

func save(stage string, r record) error {
	return write(filepath.Join(filepath.Dir(stage), recordFile), r)
}

func write(file string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return checkpoint.Replace(file, text)
}

// Uses returns the volumes of pods whose disk is mounted. A kubelet mounts them in the same places.
func (k *Kind) Uses() ([]volume.Use, error) {
	return volume.BoundUses(k.o.Root, plugin, func(dir string) (string, bool) {
		id, ok := identityOfDir(dir)
		return id.String(), ok
	})
}

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
)

// StageID identifies a PersistentVolume by driver and handle, and a block device by its name too. It is empty for an
// inline volume, which no other pod shares.
func (*Kind) StageID(r volume.Request) string {
	if r.Persistent == nil {
		return ""
	}
	return identityOf(r).String()
}

// Stage waits until the volume is attached, and stages it if the driver supports that. The stage directory of package
// volume stays empty: the volume is staged in the kubelet's place.
func (k *Kind) Stage(ctx context.Context, r volume.Request) error {
	id := identityOf(r)
	if err := id.check(); err != nil {
		return err
	}
	d, err := k.drivers.Get(id.Driver)
	if err != nil {
		return err
	}
	o, err := k.drivers.CSIDriver(id.Driver)
	if err != nil {
		return err
	}
	if err := checkMode(o, id.Driver, lifecycle(r)); err != nil {
		return err
	}
	publishContext, err := k.attacher.attach(ctx, id, o)
	if err != nil {
		if full, ok := errors.AsType[*nodeFull](err); ok && k.o.Cluster != nil {
			k.o.Cluster.NodeFull(r.Pod, full.Error())
		}
		return err
	}
	k.mu.Lock()
	k.publishContexts[id.String()] = publishContext
	done := k.staged[id.String()]
	k.mu.Unlock()
	if done || !d.Can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		return nil
	}
	s := r.Persistent.Spec.CSI
	secrets, err := k.o.secrets(ctx, s.NodeStageSecretRef)
	if err != nil {
		return fmt.Errorf("nodeStageSecretRef: %w", err)
	}
	label, err := k.o.label(o, r)
	if err != nil {
		return err
	}
	at := k.layout.paths(id)
	if err := (data{SpecName: r.Persistent.Name, Handle: id.Handle, Driver: id.Driver, Node: k.o.Node,
		Label: label}).save(at.data); err != nil {
		return err
	}
	if err := os.MkdirAll(at.staging, 0o750); err != nil {
		return err
	}
	_, err = driver.Call(driver.Migrated(ctx, r.Migrated), d.Node.NodeStageVolume, &csi.NodeStageVolumeRequest{
		VolumeId: id.Handle, PublishContext: publishContext, StagingTargetPath: at.staging, Secrets: secrets,
		VolumeContext: s.VolumeAttributes,
		VolumeCapability: capability(r, d.Can(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
			d.Can(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP), label),
	})
	if err != nil {
		return fmt.Errorf("NodeStageVolume of CSI driver %s: %w", id.Driver, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.staged[id.String()] = true
	return nil
}

// Unstage unstages the volume through the driver, if the driver was ever called to stage it.
func (k *Kind) Unstage(ctx context.Context, stage string) error {
	id, err := readID(filepath.Join(filepath.Dir(stage), idFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at := k.layout.paths(id)
	_, called, err := load(at.data)
	if err != nil {
		return err
	}
	if _, statErr := os.Lstat(at.staging); called && !errors.Is(statErr, fs.ErrNotExist) {
		d, err := k.drivers.Get(id.Driver)
		if err != nil {
			return err
		}
		k.mu.Lock()
		delete(k.staged, id.String()) // also if the driver fails: the state is unknown then
		k.mu.Unlock()
		if d.Can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
			request := &csi.NodeUnstageVolumeRequest{VolumeId: id.Handle, StagingTargetPath: at.staging}
			if _, err := driver.Call(ctx, d.Node.NodeUnstageVolume, request); err != nil {
				return fmt.Errorf("NodeUnstageVolume of CSI driver %s: %w", id.Driver, err)
			}
		}
		if err := unmounted(at.staging); err != nil {
			return err
		}
	}
	if err := at.remove(id); err != nil {
		return err
	}
	k.mu.Lock()
	delete(k.publishContexts, id.String())
	k.mu.Unlock()
	k.attacher.table.SetInUse(id.unique(), false)
	return nil
}

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// StageID names a PersistentVolume by driver and handle, a device by its name too;
// what a pod has inline is its own.
func (*Kind) StageID(r volume.Request) string {
	if r.Persistent == nil {
		return ""
	}
	return identityOf(r).String()
}

// Stage waits until the volume is attached, and has a driver that can stage volumes
// do so. The directory of the framework stays empty: the volume is where the kubelet
// would have it.
func (k *Kind) Stage(ctx context.Context, r volume.Request) error {
	id := identityOf(r)
	if err := id.check(); err != nil {
		return err
	}
	d, err := k.driver(id.Driver)
	if err != nil {
		return err
	}
	o, err := k.object(id.Driver)
	if err != nil {
		return err
	}
	if err := serves(o, id.Driver, lifecycle(r)); err != nil {
		return err
	}
	told, err := k.attach(ctx, id, o)
	if err != nil {
		if full, ok := errors.AsType[*full](err); ok && k.o.Full != nil {
			k.o.Full(r.Pod, full.Error())
		}
		return err
	}
	k.mu.Lock()
	k.attachments[id.String()] = told
	done := k.staged[id.String()]
	k.mu.Unlock()
	if done || !d.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		return nil
	}
	s := r.Persistent.Spec.CSI
	secrets, err := k.secrets(ctx, s.NodeStageSecretRef)
	if err != nil {
		return fmt.Errorf("nodeStageSecretRef: %w", err)
	}
	label, err := k.label(o, r)
	if err != nil {
		return err
	}
	at := k.paths(id)
	if err := (data{SpecName: r.Persistent.Name, Handle: id.Handle, Driver: id.Driver, Node: k.o.Node,
		Label: label}).save(at.data); err != nil {
		return err
	}
	if err := os.MkdirAll(at.staging, 0o750); err != nil {
		return err
	}
	_, err = call(ctx, d.node.NodeStageVolume, &csi.NodeStageVolumeRequest{
		VolumeId: id.Handle, PublishContext: told, StagingTargetPath: at.staging, Secrets: secrets,
		VolumeContext: s.VolumeAttributes,
		VolumeCapability: capability(r, d.has(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
			d.has(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP), label),
	})
	if err != nil {
		return fmt.Errorf("NodeStageVolume of CSI driver %s: %w", id.Driver, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.staged[id.String()] = true
	return nil
}

// Unstage has the driver undo it, if it was ever asked to stage the volume.
func (k *Kind) Unstage(ctx context.Context, stage string) error {
	id, err := readID(filepath.Join(filepath.Dir(stage), idFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at := k.paths(id)
	_, asked, err := load(at.data)
	if err != nil {
		return err
	}
	if _, statErr := os.Lstat(at.staging); asked && !errors.Is(statErr, fs.ErrNotExist) {
		d, err := k.driver(id.Driver)
		if err != nil {
			return err
		}
		k.mu.Lock()
		delete(k.staged, id.String()) // whatever comes of it
		k.mu.Unlock()
		if d.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
			request := &csi.NodeUnstageVolumeRequest{VolumeId: id.Handle, StagingTargetPath: at.staging}
			if _, err := call(ctx, d.node.NodeUnstageVolume, request); err != nil {
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
	delete(k.attachments, id.String())
	k.mu.Unlock()
	k.use(id.unique(), false)
	return nil
}

// secrets are what a reference leads to; none for nil.
func (k *registry) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	var s *corev1.Secret
	var err error
	if k.o.Client != nil && !k.standsIn() {
		s, err = k.o.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	} else {
		s, err = k.o.Objects.Secret(ref.Namespace, ref.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	all := map[string]string{}
	for key, value := range s.Data {
		all[key] = string(value)
	}
	return all, nil
}

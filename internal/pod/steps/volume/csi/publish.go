package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
)

// mountName is the name of the mount point in the volume's directory.
const mountName = "mount"

// Publish mounts the volume for the pod through the driver and returns the directory or the device. It expands a volume
// that is smaller than its claim first: a pod does not start with less (KEP-556).
func (k *Kind) Publish(ctx context.Context, r volume.Request) (string, error) {
	unlock, err := k.targets.Lock(ctx, r.Target)
	if err != nil {
		return "", err
	}
	defer unlock()
	path := k.publishPath(r)
	if err := k.publish(ctx, r, path); err != nil {
		return "", err
	}
	life, end := context.WithCancel(context.Background())
	p := &published{request: r, ctx: life, end: end}
	k.mu.Lock()
	previous := k.published[path]
	k.mu.Unlock()
	if previous != nil {
		previous.end()
		p.resume(previous)
	}
	if previous == nil {
		if err := k.expander.growMounted(ctx, path, p); err != nil {
			end()
			return "", fmt.Errorf("expand the volume: %w", err)
		}
	}
	k.mu.Lock()
	k.published[path] = p
	k.mu.Unlock()
	k.newVolume.Wake()
	return path, nil
}

func (k *Kind) publishPath(r volume.Request) string {
	if r.Block {
		return filepath.Join(k.layout.paths(identityOf(r)).publish, string(r.Pod.UID))
	}
	return filepath.Join(r.Target, mountName)
}

func (k *Kind) publish(ctx context.Context, r volume.Request, path string) error {
	name := driverName(r)
	d, err := k.drivers.Get(name)
	if err != nil {
		return err
	}
	o, err := k.drivers.CSIDriver(name)
	if err != nil {
		return err
	}
	if err := checkMode(o, name, lifecycle(r)); err != nil {
		return err
	}
	label, err := k.o.label(o, r)
	if err != nil {
		return err
	}
	request, err := k.request(ctx, r, o, d)
	if err != nil {
		return err
	}
	request.TargetPath = path
	request.VolumeCapability = capability(r, d.Can(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
		d.Can(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP), label)
	saved := data{SpecName: r.SpecName(), Handle: request.VolumeId, Driver: name, Node: k.o.Node,
		Mode: string(lifecycle(r)), Label: label,
		Attachment: attachmentName(identity{Driver: name, Handle: request.VolumeId}, k.o.Node)}
	dir := r.Target
	if r.Block {
		dir = k.layout.paths(identityOf(r)).data
		if err := link(path, r.Target); err != nil {
			return err
		}
	}
	if err := saved.save(dir); err != nil {
		return err
	}
	if _, err := driver.Call(driver.Migrated(ctx, r.Migrated), d.Node.NodePublishVolume, request); err != nil {
		return fmt.Errorf("NodePublishVolume of CSI driver %s: %w", name, err)
	}
	return nil
}

// link makes target a symbolic link to the published file of a device.
func link(path, target string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if to, err := os.Readlink(target); err == nil && to == path {
		return nil
	}
	return os.Symlink(path, target)
}

// request is the NodePublishVolume request for a pod, without the target path and the capability.
func (k *Kind) request(ctx context.Context, r volume.Request, o *storagev1.CSIDriver,
	d *driver.Driver) (*csi.NodePublishVolumeRequest, error) {
	q := &csi.NodePublishVolumeRequest{Readonly: r.ReadOnly}
	var ref *corev1.SecretReference
	if r.Persistent != nil {
		id := identityOf(r)
		s := r.Persistent.Spec.CSI
		q.VolumeId, q.VolumeContext, ref = id.Handle, s.VolumeAttributes, s.NodePublishSecretRef
		if d.Can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
			q.StagingTargetPath = k.layout.paths(id).staging
		}
		k.mu.Lock()
		q.PublishContext = k.publishContexts[id.String()]
		k.mu.Unlock()
	} else {
		s := r.Volume.CSI
		q.VolumeId, q.VolumeContext = inlineHandle(r.Pod.UID, r.Volume.Name), s.VolumeAttributes
		if s.NodePublishSecretRef != nil {
			ref = &corev1.SecretReference{Namespace: r.Pod.Namespace, Name: s.NodePublishSecretRef.Name}
		}
	}
	var err error
	if q.Secrets, err = k.o.secrets(ctx, ref); err != nil {
		return nil, fmt.Errorf("nodePublishSecretRef: %w", err)
	}
	if o == nil {
		return q, nil
	}
	if o.Spec.PodInfoOnMount != nil && *o.Spec.PodInfoOnMount {
		q.VolumeContext = merged(q.VolumeContext, podInfo(r.Pod, lifecycle(r)))
	}
	if len(o.Spec.TokenRequests) == 0 || r.Block {
		return q, nil
	}
	tokens, err := k.tokens(ctx, r.Pod, o)
	if err != nil {
		return nil, err
	}
	if o.Spec.ServiceAccountTokenInSecrets != nil && *o.Spec.ServiceAccountTokenInSecrets {
		q.Secrets = merged(q.Secrets, tokens)
	} else {
		q.VolumeContext = merged(q.VolumeContext, tokens)
	}
	return q, nil
}

// tokens requests the service account tokens that the driver wants (KEP-1855).
func (k *Kind) tokens(ctx context.Context, p *corev1.Pod, o *storagev1.CSIDriver) (map[string]string, error) {
	if k.o.Cluster == nil {
		return nil,
			fmt.Errorf("CSI driver %s needs tokens of the pod's service account, and this agent has none", o.Name)
	}
	all := map[string]authenticationv1.TokenRequestStatus{}
	for _, t := range o.Spec.TokenRequests {
		var life time.Duration
		if t.ExpirationSeconds != nil {
			life = time.Duration(*t.ExpirationSeconds) * time.Second
		}
		value, expires, err := k.o.Cluster.Token(ctx, p, t.Audience, life)
		if err != nil {
			return nil, err
		}
		all[t.Audience] = authenticationv1.TokenRequestStatus{Token: value,
			ExpirationTimestamp: metav1.NewTime(expires)}
	}
	text, err := json.Marshal(all)
	return map[string]string{infoTokens: string(text)}, err
}

// Unpublish unmounts the volume through the driver, if the driver was ever called to publish it.
func (k *Kind) Unpublish(ctx context.Context, target string) error {
	at := k.layout.placeOf(target)
	path, dir := at.path, at.dir
	k.mu.Lock()
	if p := k.published[path]; p != nil {
		p.end()
		delete(k.published, path)
	}
	k.mu.Unlock()
	unlock, err := k.targets.Lock(ctx, target)
	if err != nil {
		return err
	}
	defer unlock()
	saved, called, err := load(dir)
	if err != nil {
		return err
	}
	if called {
		d, err := k.drivers.Get(saved.Driver)
		if err != nil {
			return err
		}
		if _, err := driver.Call(ctx, d.Node.NodeUnpublishVolume,
			&csi.NodeUnpublishVolumeRequest{VolumeId: saved.Handle, TargetPath: path}); err != nil {
			return fmt.Errorf("NodeUnpublishVolume of CSI driver %s: %w", saved.Driver, err)
		}
	}
	if err := unmounted(path); err != nil {
		return err
	}
	return forget(at, target)
}

// unmounted returns an error if something is mounted on path.
func unmounted(path string) error {
	at, err := mount.At(path)
	if err == nil && at != nil {
		err = fmt.Errorf("the CSI driver has left a %s mounted on %s%s", at.FSType, path, volume.HeldBy(path))
	}
	return err
}

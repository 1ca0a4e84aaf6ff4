package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// mountName is the mount's name in the volume's directory.
const mountName = "mount"

// Publish has the driver mount the volume for the pod, and returns the directory or
// the device. What needs more space than it has gets it first: a pod does not start
// with less than its claim was promised (KEP-556).
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
	before := k.published[path]
	if before != nil {
		before.end()
		p.size, p.stuck, p.usage, p.tended = before.size, before.stuck, before.usage, before.tended
	}
	k.mu.Unlock()
	if before == nil {
		if err := k.growMounted(ctx, path, p); err != nil {
			end()
			return "", fmt.Errorf("expand the volume: %w", err)
		}
	}
	k.mu.Lock()
	k.published[path] = p
	k.mu.Unlock()
	select {
	case k.fresh <- struct{}{}:
	default:
	}
	return path, nil
}

func (k *Kind) publishPath(r volume.Request) string {
	if r.Block {
		return filepath.Join(k.paths(identityOf(r)).publish, string(r.Pod.UID))
	}
	return filepath.Join(r.Target, mountName)
}

func (k *Kind) publish(ctx context.Context, r volume.Request, path string) error {
	name := driverName(r)
	d, err := k.driver(name)
	if err != nil {
		return err
	}
	o, err := k.object(name)
	if err != nil {
		return err
	}
	if err := serves(o, name, lifecycle(r)); err != nil {
		return err
	}
	label, err := k.label(o, r)
	if err != nil {
		return err
	}
	request, err := k.request(ctx, r, o, d)
	if err != nil {
		return err
	}
	request.TargetPath = path
	request.VolumeCapability = capability(r, d.has(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
		d.has(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP), label)
	kept := data{SpecName: claimName(r), Handle: request.VolumeId, Driver: name, Node: k.o.Node,
		Mode: string(lifecycle(r)), Label: label,
		Attachment: attachmentName(identity{Driver: name, Handle: request.VolumeId}, k.o.Node)}
	dir := r.Target
	if r.Block {
		dir = k.paths(identityOf(r)).data
		if err := link(path, r.Target); err != nil {
			return err
		}
	}
	if err := kept.save(dir); err != nil {
		return err
	}
	if _, err := call(ctx, d.node.NodePublishVolume, request); err != nil {
		return fmt.Errorf("NodePublishVolume of CSI driver %s: %w", name, err)
	}
	return nil
}

// link has the pod's directory lead to a device's published file.
func link(path, target string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if to, err := os.Readlink(target); err == nil && to == path {
		return nil
	}
	return os.Symlink(path, target)
}

// request is what the driver is asked for a pod, without the place and the
// capability.
func (k *Kind) request(ctx context.Context, r volume.Request, o *storagev1.CSIDriver,
	d *driver) (*csi.NodePublishVolumeRequest, error) {
	q := &csi.NodePublishVolumeRequest{Readonly: r.ReadOnly}
	var ref *corev1.SecretReference
	if r.Persistent != nil {
		id := identityOf(r)
		s := r.Persistent.Spec.CSI
		q.VolumeId, q.VolumeContext, ref = id.Handle, s.VolumeAttributes, s.NodePublishSecretRef
		if d.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
			q.StagingTargetPath = k.paths(id).staging
		}
		k.mu.Lock()
		q.PublishContext = k.attachments[id.String()]
		k.mu.Unlock()
	} else {
		s := r.Volume.CSI
		q.VolumeId, q.VolumeContext = inlineHandle(r.Pod.UID, r.Volume.Name), s.VolumeAttributes
		if s.NodePublishSecretRef != nil {
			ref = &corev1.SecretReference{Namespace: r.Pod.Namespace, Name: s.NodePublishSecretRef.Name}
		}
	}
	var err error
	if q.Secrets, err = k.secrets(ctx, ref); err != nil {
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

// tokens are what the driver wants of the pod's service account (KEP-1855).
func (k *Kind) tokens(ctx context.Context, p *corev1.Pod, o *storagev1.CSIDriver) (map[string]string, error) {
	if k.o.Token == nil {
		return nil,
			fmt.Errorf("CSI driver %s wants tokens of the pod's service account, and there are none here", o.Name)
	}
	all := map[string]authenticationv1.TokenRequestStatus{}
	for _, t := range o.Spec.TokenRequests {
		var life time.Duration
		if t.ExpirationSeconds != nil {
			life = time.Duration(*t.ExpirationSeconds) * time.Second
		}
		value, expires, err := k.o.Token(ctx, p, t.Audience, life)
		if err != nil {
			return nil, err
		}
		all[t.Audience] = authenticationv1.TokenRequestStatus{Token: value,
			ExpirationTimestamp: metav1.NewTime(expires)}
	}
	text, err := json.Marshal(all)
	return map[string]string{infoTokens: string(text)}, err
}

// place is what a volume's place in a pod's directory says of it.
type place struct {
	uid types.UID
	// block is the name of the PersistentVolume of a device, "" for a file system.
	block string
	// path is what Publish has returned, dir the directory of vol_data.json.
	path, dir string
}

func (k *registry) placeOf(target string) place {
	sort := filepath.Dir(filepath.Dir(target)) // volumes or volumeDevices
	p := place{uid: types.UID(filepath.Base(filepath.Dir(sort))), path: filepath.Join(target, mountName), dir: target}
	if filepath.Base(sort) == "volumeDevices" {
		p.block = filepath.Base(target)
		at := k.paths(identity{Block: p.block})
		p.path, p.dir = filepath.Join(at.publish, string(p.uid)), at.data
	}
	return p
}

// unmap undoes what a kubelet has besides for a device: a bind of it for each pod,
// and a loop device on that, which keeps it busy.
func unmap(at place) error {
	bind := filepath.Join(filepath.Dir(at.dir), "dev", string(at.uid))
	if err := detachLoops(bind); err != nil {
		return err
	}
	if err := volume.Unmount(bind); err != nil {
		return err
	}
	return ignoreMissing(os.Remove(bind))
}

// Unpublish has the driver undo it, if it was ever asked to publish the volume.
func (k *Kind) Unpublish(ctx context.Context, target string) error {
	at := k.placeOf(target)
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
	kept, asked, err := load(dir)
	if err != nil {
		return err
	}
	if asked {
		d, err := k.driver(kept.Driver)
		if err != nil {
			return err
		}
		if _, err := call(ctx, d.node.NodeUnpublishVolume,
			&csi.NodeUnpublishVolumeRequest{VolumeId: kept.Handle, TargetPath: path}); err != nil {
			return fmt.Errorf("NodeUnpublishVolume of CSI driver %s: %w", kept.Driver, err)
		}
	}
	if err := unmounted(path); err != nil {
		return err
	}
	return forget(at, target)
}

// forget removes what is kept of a volume of a pod that is not mounted any more.
func forget(at place, target string) error {
	if at.block == "" {
		return remove(target, mountName, dataFile, "."+dataFile)
	}
	if err := unmap(at); err != nil { // vol_data.json is of all pods
		return err
	}
	return errors.Join(ignoreMissing(os.Remove(at.path)), ignoreMissing(os.Remove(target)))
}

// unmounted is an error while something is mounted on path.
func unmounted(path string) error {
	at, err := mount.At(path)
	if err == nil && at != nil {
		err = fmt.Errorf("the CSI driver has left a %s mounted on %s%s", at.FSType, path, volume.HeldBy(path))
	}
	return err
}

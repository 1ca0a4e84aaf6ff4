package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/worker"
)

// A node may get a VolumeAttachment and not watch it, so the step polls. After attachTimeout the step fails with what
// it waits for, which the pod's events show, and starts over.
const (
	firstPoll     = 200 * time.Millisecond
	slowestPoll   = 5 * time.Second
	attachTimeout = 15 * time.Second
)

// InUse returns the volumes for the Node's status.volumesInUse: they must stay attached. known is false until Run has
// read the volumes of an earlier agent.
func (k *attacher) InUse() (volumes []corev1.UniqueVolumeName, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.inUse)), k.restored
}

// NodeChanged wakes the steps that wait for an attachment, after a change of the Node's status.volumesInUse or
// volumesAttached. It does not block.
func (k *attacher) NodeChanged() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.nodeChanged)
	k.nodeChanged = make(chan struct{})
}

// restore adds the volumes that an earlier agent has staged to inUse.
func (k *attacher) restore() {
	files, _ := filepath.Glob(filepath.Join(k.o.Root, "plugins", dirName, "*",
		idFile)) // an error would mean a bad pattern
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range files {
		if id, err := readID(name); err == nil {
			k.inUse[id.unique()] = true
		}
	}
	k.restored = true
}

// Uses returns the mounted volumes of pods that share a part, from the vol_data.json files. A kubelet writes these too.
func (k *attacher) Uses() (all []volume.Use, err error) {
	found, _ := filepath.Glob(filepath.Join(k.o.Root, "pods", "*", "volume*", dirName,
		"*")) // an error would mean a bad pattern
	for _, target := range found {
		at := k.placeOf(target)
		saved, ok, loadErr := load(at.dir)
		if loadErr != nil || !ok || saved.Mode == string(storagev1.VolumeLifecycleEphemeral) {
			err = errors.Join(err, loadErr)
			continue
		}
		id := identity{Driver: saved.Driver, Handle: saved.Handle, Block: at.block}
		if checkErr := id.check(); checkErr != nil {
			err = errors.Join(err, fmt.Errorf("read mounted volume from %s: %w", at.dir, checkErr))
			continue
		}
		all = append(all, volume.Use{StageID: id.String(), UID: at.uid, Volume: filepath.Base(target)})
	}
	return all, err
}

// idFile is the name of the file where package volume keeps the StageID.
const idFile = "id"

func readID(name string) (id identity, err error) {
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err == nil {
		err = id.check()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("read staged volume from %s: %w", name, err)
	}
	return id, err
}

func (k *attacher) setInUse(name corev1.UniqueVolumeName, used bool) {
	k.mu.Lock()
	changed := k.inUse[name] != used
	if used {
		k.inUse[name] = true
	} else {
		delete(k.inUse, name)
	}
	k.mu.Unlock()
	if changed && k.o.InUseChanged != nil {
		k.o.InUseChanged()
	}
}

// nodeFull is the error for a volume that exceeds the number of volumes that the node can attach.
type nodeFull struct{ handle, why string }

func (e *nodeFull) Error() string {
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. volume %s: %s", e.handle, e.why)
}

// attach waits until the volume is attached. It returns the publish context, which the driver's controller passes to
// the node.
func (k *attacher) attach(ctx context.Context, id identity, o *storagev1.CSIDriver) (map[string]string, error) {
	if k.o.Client == nil || !attaches(o) {
		return nil, nil
	}
	k.setInUse(id.unique(), true)
	if k.standsIn() { // the volume may be attached to another node by now
		return nil,
			worker.RetryAt(k.o.Now().Add(slowestPoll),
				fmt.Errorf(
					"waiting for the API server, which is away, to confirm that volume %s of CSI driver %s is "+
						"attached to this node", id.Handle, id.Driver))
	}
	var publishContext map[string]string
	waitsFor := fmt.Errorf("volume %s has not been added to the list of VolumesInUse in the node's volume status",
		id.unique())
	err := k.poll(ctx, func(ctx context.Context) (bool, error) {
		if k.o.Reported != nil && !slices.Contains(k.o.Reported(), id.unique()) {
			return false, nil
		}
		name := attachmentName(id, k.o.Node)
		a, err := k.o.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // the authorizer forbids it until it exists
			waitsFor = fmt.Errorf("waiting for the volume to be attached: there is no VolumeAttachment %s yet", name)
			return false, nil
		case err != nil:
			return false, fmt.Errorf("get VolumeAttachment %s: %w", name, err)
		}
		waitsFor = fmt.Errorf(
			"waiting for the external-attacher of CSI driver %s to attach volume %s (VolumeAttachment %s)", id.Driver,
			id.Handle, name)
		if exhausted(a) {
			k.drivers.RefreshLimit(id.Driver)
			return false, &nodeFull{id.Handle, a.Status.AttachError.Message}
		}
		publishContext = a.Status.AttachmentMetadata
		return attached(a)
	})
	if errors.Is(err, errNotYet) {
		return nil, worker.RetryAt(k.o.Now().Add(time.Second), waitsFor)
	}
	return publishContext, err
}

// errNotYet is the cause when attachTimeout ends a poll.
var errNotYet = errors.New("not attached in time")

// poll calls attached until it returns true or an error. Its pauses double, and a change of the Node ends a pause.
func (k *attacher) poll(ctx context.Context, attached func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attachTimeout, errNotYet)
	defer cancel()
	for pauses := retry.Doubling(firstPoll, slowestPoll); ; {
		k.mu.Lock()
		nodeChanged := k.nodeChanged
		k.mu.Unlock()
		done, err := attached(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if done || err != nil {
			return err
		}
		timer := time.NewTimer(pauses.Step())
		select {
		case <-timer.C:
		case <-nodeChanged:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume/attachment"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/pod/worker"
)

// attacher waits until volumes are attached, and reports them as in use so that they stay attached.
type attacher struct {
	o       Options
	drivers *driver.Registry
	layout  layout
	table   *attachment.Table
}

// restore adds the volumes that an earlier agent has staged. Their StageIDs are on disk.
func (a attacher) restore() {
	files, _ := filepath.Glob(filepath.Join(string(a.layout), "plugins", dirName, "*",
		idFile)) // an error would mean a bad pattern
	var names []corev1.UniqueVolumeName
	for _, name := range files {
		if id, err := readID(name); err == nil {
			names = append(names, id.unique())
		}
	}
	a.table.Restore(names)
}

// nodeFull is the error for a volume that exceeds the number of volumes that the node can attach.
type nodeFull struct{ handle, why string }

func (e *nodeFull) Error() string {
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. volume %s: %s", e.handle, e.why)
}

// attach waits until the volume is attached. It returns the publish context, which the driver's controller passes to
// the node. A node may get its VolumeAttachment and not watch it, so that attach polls.
func (a attacher) attach(ctx context.Context, id identity, o *storagev1.CSIDriver) (map[string]string, error) {
	if a.o.Client == nil || !attaches(o) {
		return nil, nil
	}
	a.table.SetInUse(id.unique(), true)
	if a.o.away() { // the volume may be attached to another node by now
		return nil,
			worker.RetryAt(a.o.Now().Add(attachment.Pause),
				fmt.Errorf(
					"waiting for the API server, which is away, to confirm that volume %s of CSI driver %s is "+
						"attached to this node", id.Handle, id.Driver))
	}
	var publishContext map[string]string
	waitsFor := fmt.Errorf("volume %s has not been added to the list of VolumesInUse in the node's volume status",
		id.unique())
	err := a.table.Poll(ctx, func(ctx context.Context) (bool, error) {
		if !a.table.Reported(id.unique()) {
			return false, nil
		}
		name := attachmentName(id, a.o.Node)
		found, err := a.o.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
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
		if exhausted(found) {
			a.drivers.RefreshLimit(id.Driver)
			return false, &nodeFull{id.Handle, found.Status.AttachError.Message}
		}
		publishContext = found.Status.AttachmentMetadata
		return attached(found)
	})
	if errors.Is(err, attachment.ErrNotYet) {
		return nil, worker.RetryAt(a.o.Now().Add(time.Second), waitsFor)
	}
	return publishContext, err
}

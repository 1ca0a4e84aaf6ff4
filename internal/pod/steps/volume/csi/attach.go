package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/pod/worker"
)

// A node may get a VolumeAttachment and not watch it, so the step polls. After attachTimeout the step fails with what
// it waits for, which the pod's events show, and starts over.
const (
	firstPoll     = 200 * time.Millisecond
	slowestPoll   = 5 * time.Second
	attachTimeout = 15 * time.Second
)

// attacher waits until volumes are attached, and reports them as in use so that they stay attached.
type attacher struct {
	o       Options
	drivers *driver.Registry
	layout  layout

	mu sync.Mutex
	// inUse are the attached volumes. Their StageIDs are on disk. restored is set if inUse includes the volumes of an
	// earlier agent.
	inUse    map[corev1.UniqueVolumeName]bool
	restored bool
	// nodeChanged is closed and replaced whenever the Node has changed.
	nodeChanged chan struct{}
}

func newAttacher(o Options, drivers *driver.Registry, l layout) *attacher {
	return &attacher{o: o, drivers: drivers, layout: l, inUse: map[corev1.UniqueVolumeName]bool{},
		nodeChanged: make(chan struct{})}
}

// InUse is the method of Kind.
func (a *attacher) InUse() (volumes []corev1.UniqueVolumeName, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.inUse)), a.restored
}

// NodeChanged is the method of Kind.
func (a *attacher) NodeChanged() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.nodeChanged)
	a.nodeChanged = make(chan struct{})
}

// restore adds the volumes that an earlier agent has staged to inUse.
func (a *attacher) restore() {
	files, _ := filepath.Glob(filepath.Join(string(a.layout), "plugins", dirName, "*",
		idFile)) // an error would mean a bad pattern
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range files {
		if id, err := readID(name); err == nil {
			a.inUse[id.unique()] = true
		}
	}
	a.restored = true
}

func (a *attacher) setInUse(name corev1.UniqueVolumeName, used bool) {
	a.mu.Lock()
	changed := a.inUse[name] != used
	if used {
		a.inUse[name] = true
	} else {
		delete(a.inUse, name)
	}
	a.mu.Unlock()
	if changed {
		a.o.InUseChanged.Wake()
	}
}

// nodeFull is the error for a volume that exceeds the number of volumes that the node can attach.
type nodeFull struct{ handle, why string }

func (e *nodeFull) Error() string {
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. volume %s: %s", e.handle, e.why)
}

// attach waits until the volume is attached. It returns the publish context, which the driver's controller passes to
// the node.
func (a *attacher) attach(ctx context.Context, id identity, o *storagev1.CSIDriver) (map[string]string, error) {
	if a.o.Client == nil || !attaches(o) {
		return nil, nil
	}
	a.setInUse(id.unique(), true)
	if a.o.away() { // the volume may be attached to another node by now
		return nil,
			worker.RetryAt(a.o.Now().Add(slowestPoll),
				fmt.Errorf(
					"waiting for the API server, which is away, to confirm that volume %s of CSI driver %s is "+
						"attached to this node", id.Handle, id.Driver))
	}
	var publishContext map[string]string
	waitsFor := fmt.Errorf("volume %s has not been added to the list of VolumesInUse in the node's volume status",
		id.unique())
	err := a.poll(ctx, func(ctx context.Context) (bool, error) {
		if a.o.Reported != nil && !slices.Contains(a.o.Reported(), id.unique()) {
			return false, nil
		}
		name := attachmentName(id, a.o.Node)
		attachment, err := a.o.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
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
		if exhausted(attachment) {
			a.drivers.RefreshLimit(id.Driver)
			return false, &nodeFull{id.Handle, attachment.Status.AttachError.Message}
		}
		publishContext = attachment.Status.AttachmentMetadata
		return attached(attachment)
	})
	if errors.Is(err, errNotYet) {
		return nil, worker.RetryAt(a.o.Now().Add(time.Second), waitsFor)
	}
	return publishContext, err
}

// errNotYet is the cause when attachTimeout ends a poll.
var errNotYet = errors.New("not attached in time")

// poll calls attached until it returns true or an error. Its pauses double, and a change of the Node ends a pause.
func (a *attacher) poll(ctx context.Context, attached func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attachTimeout, errNotYet)
	defer cancel()
	for pauses := retry.Doubling(firstPoll, slowestPoll); ; {
		a.mu.Lock()
		nodeChanged := a.nodeChanged
		a.mu.Unlock()
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

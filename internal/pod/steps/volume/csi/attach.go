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

	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/worker"
)

// How often an attachment is looked for, which a node may get and not watch; and
// after how long the pod is told and the step begins anew.
const (
	firstLook   = 200 * time.Millisecond
	lastLook    = 5 * time.Second
	attachLimit = 15 * time.Second
)

// InUse are the volumes for a Node's status.volumesInUse: those that are attached
// and must stay so. known is false before an earlier agent's were counted, in Run.
func (k *attacher) InUse() (volumes []corev1.UniqueVolumeName, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.using)), k.counted
}

// NodeChanged is told that this Node has another status.volumesInUse or
// volumesAttached. It does not block.
func (k *attacher) NodeChanged() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.moved)
	k.moved = make(chan struct{})
}

// count finds the volumes that an earlier agent has used.
func (k *attacher) count() {
	files, _ := filepath.Glob(filepath.Join(k.o.Root, "plugins", dirName, "*", idFile)) // the pattern is good
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range files {
		if id, err := readID(name); err == nil {
			k.using[id.unique()] = true
		}
	}
	k.counted = true
}

// Uses are the volumes of pods that have a vol_data.json, which a kubelet writes too.
func (k *registry) Uses() (all []volume.Use, err error) {
	found, _ := filepath.Glob(filepath.Join(k.o.Root, "pods", "*", "volume*", dirName, "*")) // the pattern is good
	for _, target := range found {
		at := k.placeOf(target)
		kept, ok, loadErr := load(at.dir)
		if loadErr != nil || !ok || kept.Mode == string(storagev1.VolumeLifecycleEphemeral) {
			err = errors.Join(err, loadErr)
			continue
		}
		id := identity{Driver: kept.Driver, Handle: kept.Handle, Block: at.block}
		if checkErr := id.check(); checkErr != nil {
			err = errors.Join(err, fmt.Errorf("read what is mounted from %s: %w", at.dir, checkErr))
			continue
		}
		all = append(all, volume.Use{StageID: id.String(), UID: at.uid, Volume: filepath.Base(target)})
	}
	return all, err
}

// idFile is the framework's file with the StageID.
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
		err = fmt.Errorf("read what is staged from %s: %w", name, err)
	}
	return id, err
}

func (k *attacher) use(name corev1.UniqueVolumeName, used bool) {
	k.mu.Lock()
	changed := k.using[name] != used
	if used {
		k.using[name] = true
	} else {
		delete(k.using, name)
	}
	k.mu.Unlock()
	if changed && k.o.InUseChanged != nil {
		k.o.InUseChanged()
	}
}

// full is that a node has no room for one more volume.
type full struct{ handle, why string }

func (e *full) Error() string {
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. volume %s: %s", e.handle, e.why)
}

// attach waits until the volume is attached and returns what the driver's
// controller has to say of it to the node.
func (k *attacher) attach(ctx context.Context, id identity, o *storagev1.CSIDriver) (map[string]string, error) {
	if k.o.Client == nil || !attaches(o) {
		return nil, nil
	}
	k.use(id.unique(), true)
	if k.standsIn() { // it may be attached to another node by now
		return nil,
			worker.RetryAt(k.o.Now().Add(lastLook),
				fmt.Errorf(
					"waiting for the API server, which is away, to confirm that volume %s of CSI driver %s is "+
						"attached to this node", id.Handle, id.Driver))
	}
	var told map[string]string
	what := fmt.Errorf("volume %s has not been added to the list of VolumesInUse in the node's volume status",
		id.unique())
	err := k.poll(ctx, func(ctx context.Context) (bool, error) {
		if k.o.Reported != nil && !slices.Contains(k.o.Reported(), id.unique()) {
			return false, nil
		}
		name := attachmentName(id, k.o.Node)
		a, err := k.o.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // the authorizer knows it as soon as it is there
			what = fmt.Errorf("waiting for the volume to be attached: there is no VolumeAttachment %s yet", name)
			return false, nil
		case err != nil:
			return false, fmt.Errorf("get VolumeAttachment %s: %w", name, err)
		}
		what = fmt.Errorf(
			"waiting for the external-attacher of CSI driver %s to attach volume %s (VolumeAttachment %s)", id.Driver,
			id.Handle, name)
		if exhausted(a) {
			k.askAgain(id.Driver)
			return false, &full{id.Handle, a.Status.AttachError.Message}
		}
		told = a.Status.AttachmentMetadata
		return attached(a)
	})
	if errors.Is(err, errSlow) {
		return nil, worker.RetryAt(k.o.Now().Add(time.Second), what)
	}
	return told, err
}

// askAgain has a driver asked at the next pass how many volumes it can have.
func (k *registry) askAgain(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.drivers[name]; d != nil {
		d.due = k.o.Now()
	}
}

// errSlow is of what did not come true within attachLimit.
var errSlow = errors.New("it takes long")

// poll asks until it is true, at growing pauses and when the Node changes.
func (k *attacher) poll(ctx context.Context, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attachLimit, errSlow)
	defer cancel()
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		k.mu.Lock()
		moved := k.moved
		k.mu.Unlock()
		done, err := ask(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if done || err != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-moved:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

package csidriver

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/berth-run/berth/internal/model/intree"
)

// ControllerPublishVolume attaches nothing. It returns a made-up name of the device.
func (*Driver) ControllerPublishVolume(_ context.Context,
	q *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "disk of " +
		q.GetVolumeId()}}, nil
}

// ControllerUnpublishVolume does nothing.
func (*Driver) ControllerUnpublishVolume(context.Context,
	*csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// Attach is the external-attacher of the driver until ctx ends. It calls the driver to attach the volumes of
// VolumeAttachments, and to detach the volumes of deleted ones. It returns an error when the API server or the driver's
// socket fails.
func (d *Driver) Attach(ctx context.Context, client kubernetes.Interface) error {
	conn, err := grpc.NewClient("unix:"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	a := attacher{driver: d, client: client, controller: csi.NewControllerClient(conn)}
	w, err := a.attachments().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		va, ok := e.Object.(*storagev1.VolumeAttachment)
		if !ok {
			return fmt.Errorf("watch VolumeAttachments: %v", e.Object)
		}
		if va.Spec.Attacher != d.Name {
			continue
		}
		// The watch also reports versions from before this attacher's last change, and a step for one would come twice.
		va, err := a.attachments().Get(ctx, va.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := a.reconcile(ctx, va); err != nil {
			return err
		}
	}
	return ctx.Err()
}

type attacher struct {
	driver     *Driver
	client     kubernetes.Interface
	controller csi.ControllerClient
}

func (a attacher) attachments() v1.VolumeAttachmentInterface {
	return a.client.StorageV1().VolumeAttachments()
}

// reconcile takes the next step for one attachment. The watch reports its change, which starts the step after it.
func (a attacher) reconcile(ctx context.Context, va *storagev1.VolumeAttachment) error {
	finalizer := "external-attacher/" + a.driver.Name
	held := len(va.Finalizers) > 0
	switch {
	case va.DeletionTimestamp == nil && !held:
		return a.patch(ctx, va, map[string]any{"metadata": map[string]any{"finalizers": []string{finalizer}}})
	case va.DeletionTimestamp == nil && va.Status.Attached, va.DeletionTimestamp != nil && !held:
		return nil
	}
	handle, err := a.handle(ctx, va)
	if err != nil {
		return err
	}
	if va.DeletionTimestamp != nil {
		if _, err := a.controller.ControllerUnpublishVolume(ctx,
			&csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: a.driver.NodeID}); err != nil {
			return err
		}
		return a.patch(ctx, va, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	got, err := a.controller.ControllerPublishVolume(ctx,
		&csi.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: a.driver.NodeID})
	if status.Code(err) == codes.Internal { // the next change of the object retries the call
		if va.Status.AttachError != nil {
			return nil
		}
		return a.patch(ctx, va,
			map[string]any{
				"status": map[string]any{"attachError": map[string]any{"message": status.Convert(err).Message()}}},
			"status")
	}
	if err != nil {
		return err
	}
	return a.patch(ctx, va,
		map[string]any{"status": map[string]any{"attached": true, "attachError": nil,
			"attachmentMetadata": got.GetPublishContext()}}, "status")
}

// handle returns the driver's name of the volume of an attachment. An in-tree volume is translated first.
func (a attacher) handle(ctx context.Context, va *storagev1.VolumeAttachment) (string, error) {
	if inline := va.Spec.Source.InlineVolumeSpec; inline != nil {
		return inline.CSI.VolumeHandle, nil
	}
	pv, err := a.client.CoreV1().PersistentVolumes().Get(ctx, *va.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if migrated, ok, err := intree.Persistent(pv); err != nil {
		return "", err
	} else if ok {
		pv = migrated
	}
	return pv.Spec.CSI.VolumeHandle, nil
}

func (a attacher) patch(ctx context.Context, va *storagev1.VolumeAttachment, change map[string]any,
	sub ...string) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = a.attachments().Patch(ctx, va.Name, types.MergePatchType, text, metav1.PatchOptions{}, sub...)
	if apierrors.IsNotFound(err) {
		return nil // it was deleted after the watch had reported it
	}
	return err
}

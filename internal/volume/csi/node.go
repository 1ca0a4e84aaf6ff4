package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// annotationIDs of the Node are the ids that drivers have for it.
const annotationIDs = "csi.volume.kubernetes.io/nodeid"

// tellLimit bounds how long the cluster is told of one driver.
const tellLimit = 30 * time.Second

// tellNode writes what a driver says of this node into the Node and its CSINode, or
// takes the driver out of them for nil. One call at a time: the annotation is read and
// written.
func (k *registry) tellNode(ctx context.Context, name string, i *info) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	node, err := k.o.Client.CoreV1().Nodes().Get(ctx, k.o.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %q: %w", k.o.Node, err)
	}
	if i != nil {
		if err := clash(node.Labels, i.topology); err != nil {
			return err
		}
	}
	if err := k.annotate(ctx, node, name, i); err != nil {
		return err
	}
	for {
		err := k.writeCSINode(ctx, node, name, i)
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

// annotate patches what differs, and only that.
func (k *registry) annotate(ctx context.Context, node *corev1.Node, name string, i *info) error {
	meta := map[string]any{}
	if text := annotated(node.Annotations[annotationIDs], name, i); text != node.Annotations[annotationIDs] {
		meta["annotations"] = map[string]any{annotationIDs: orNull(text)}
	}
	if i != nil {
		labels := map[string]string{}
		for key, value := range i.topology {
			if node.Labels[key] != value {
				labels[key] = value
			}
		}
		if len(labels) > 0 {
			meta["labels"] = labels
		}
	}
	if len(meta) == 0 {
		return nil
	}
	meta["uid"] = node.UID
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	if _, err := k.o.Client.CoreV1().Nodes().Patch(ctx, k.o.Node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("tell node %q of CSI driver %s: %w", k.o.Node, name, err)
	}
	return nil
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// Present makes the CSINode of a node without one, and has it get the drivers that are
// there. Other parts of the cluster go by it before any driver has come: without it the
// scheduler knows of no limits.
func (k *registry) Present(ctx context.Context, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	_, err := k.o.Client.StorageV1().CSINodes().Get(ctx, k.o.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = k.createCSINode(ctx, node, []storagev1.CSINodeDriver{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			k.noteAll()
			return nil
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("get CSINode %q: %w", k.o.Node, err)
	}
	return nil
}

func (k *registry) createCSINode(ctx context.Context, node *corev1.Node, drivers []storagev1.CSINodeDriver) error {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name:            k.o.Node,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}, Spec: storagev1.CSINodeSpec{Drivers: drivers}}
	if _, err := k.o.Client.StorageV1().CSINodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create CSINode %q: %w", k.o.Node, err)
	}
	return nil
}

func (k *registry) writeCSINode(ctx context.Context, node *corev1.Node, name string, i *info) error {
	nodes := k.o.Client.StorageV1().CSINodes()
	now, err := nodes.Get(ctx, k.o.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && i == nil:
		return nil
	case apierrors.IsNotFound(err):
		return k.createCSINode(ctx, node, listed(nil, name, i))
	case err != nil:
		return fmt.Errorf("get CSINode %q: %w", k.o.Node, err)
	}
	next := now.DeepCopy()
	next.Spec.Drivers = listed(now.Spec.Drivers, name, i)
	if reflect.DeepEqual(now.Spec.Drivers, next.Spec.Drivers) {
		return nil
	}
	if _, err := nodes.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update CSINode %q: %w", k.o.Node, err)
	}
	return nil
}

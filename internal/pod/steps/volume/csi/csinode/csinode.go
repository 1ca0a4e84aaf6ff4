package csinode

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Options of a Writer. All are required.
type Options struct {
	Client kubernetes.Interface
	// Node is this node's name.
	Node   string
	Events events
	Log    *slog.Logger
}

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Writer tells the cluster of drivers. Make it with New, then Run it. Its methods may
// be called from any goroutine; nil is that of a node without a cluster.
type Writer struct {
	o     Options
	noted chan struct{} // one token: there is news

	mu sync.Mutex
	// drivers are those that there are, untold those of which the cluster does not
	// know yet.
	drivers map[string]*Info
	untold  map[string]*News
}

// New makes a Writer that knows of no driver.
func New(o Options) *Writer {
	return &Writer{o: o, noted: make(chan struct{}, 1), drivers: map[string]*Info{}, untold: map[string]*News{}}
}

// annotationIDs of the Node are the ids that drivers have for it.
const annotationIDs = "csi.volume.kubernetes.io/nodeid"

// tellLimit bounds how long the cluster is told of one driver.
const tellLimit = 30 * time.Second

// tellNode writes what a driver says of this node into the Node and its CSINode, or
// takes the driver out of them for nil. One call at a time: the annotation is read and
// written.
func (w *Writer) tellNode(ctx context.Context, name string, i *Info) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	node, err := w.o.Client.CoreV1().Nodes().Get(ctx, w.o.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %q: %w", w.o.Node, err)
	}
	if i != nil {
		if err := clash(node.Labels, i.Topology); err != nil {
			return err
		}
	}
	if err := w.annotate(ctx, node, name, i); err != nil {
		return err
	}
	for {
		err := w.write(ctx, node, name, i)
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

// annotate patches what differs, and only that.
func (w *Writer) annotate(ctx context.Context, node *corev1.Node, name string, i *Info) error {
	meta := map[string]any{}
	if text := annotated(node.Annotations[annotationIDs], name, i); text != node.Annotations[annotationIDs] {
		meta["annotations"] = map[string]any{annotationIDs: orNull(text)}
	}
	if i != nil {
		labels := map[string]string{}
		for key, value := range i.Topology {
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
	if _, err := w.o.Client.CoreV1().Nodes().Patch(ctx, w.o.Node, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("tell node %q of CSI driver %s: %w", w.o.Node, name, err)
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
func (w *Writer) Present(ctx context.Context, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	_, err := w.o.Client.StorageV1().CSINodes().Get(ctx, w.o.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = w.create(ctx, node, []storagev1.CSINodeDriver{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			w.again()
			return nil
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("get CSINode %q: %w", w.o.Node, err)
	}
	return nil
}

func (w *Writer) create(ctx context.Context, node *corev1.Node, drivers []storagev1.CSINodeDriver) error {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name:            w.o.Node,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}, Spec: storagev1.CSINodeSpec{Drivers: drivers}}
	if _, err := w.o.Client.StorageV1().CSINodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create CSINode %q: %w", w.o.Node, err)
	}
	return nil
}

func (w *Writer) write(ctx context.Context, node *corev1.Node, name string, i *Info) error {
	nodes := w.o.Client.StorageV1().CSINodes()
	now, err := nodes.Get(ctx, w.o.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && i == nil:
		return nil
	case apierrors.IsNotFound(err):
		return w.create(ctx, node, listed(nil, name, i))
	case err != nil:
		return fmt.Errorf("get CSINode %q: %w", w.o.Node, err)
	}
	next := now.DeepCopy()
	next.Spec.Drivers = listed(now.Spec.Drivers, name, i)
	if reflect.DeepEqual(now.Spec.Drivers, next.Spec.Drivers) {
		return nil
	}
	if _, err := nodes.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update CSINode %q: %w", w.o.Node, err)
	}
	return nil
}

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

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/record/event"
)

// Options of a Writer. All are required.
type Options struct {
	Client kubernetes.Interface
	// Node is this node's name.
	Node   string
	Events event.Sink
	Log    *slog.Logger
}

// Writer publishes the node's drivers to the API server. Make it with New, then Run it. Its methods may be called from
// any goroutine. A nil Writer belongs to a node without a cluster and publishes nothing.
type Writer struct {
	o      Options
	queued wake.Signal // pending has a new entry

	mu      sync.Mutex
	drivers map[string]*Info   // all registered drivers, by name
	pending map[string]*Update // not yet accepted by the API server, by driver name
}

// New makes a Writer without drivers.
func New(o Options) *Writer {
	return &Writer{o: o, queued: wake.New(), drivers: map[string]*Info{}, pending: map[string]*Update{}}
}

// annotationIDs of the Node is a JSON object with the id that each driver uses for the node.
const annotationIDs = "csi.volume.kubernetes.io/nodeid"

// writeTimeout bounds the requests for one driver.
const writeTimeout = 30 * time.Second

// writeDriver sets a driver in the Node and its CSINode, or removes it from them if i is nil. Only one call may run at
// a time, because the annotation is read, changed and written.
func (w *Writer) writeDriver(ctx context.Context, name string, i *Info) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	node, err := w.o.Client.CoreV1().Nodes().Get(ctx, w.o.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %q: %w", w.o.Node, err)
	}
	if i != nil {
		if err := checkLabels(node.Labels, i.Topology); err != nil {
			return err
		}
	}
	if err := w.annotate(ctx, node, name, i); err != nil {
		return err
	}
	for {
		err := w.writeCSINode(ctx, node, name, i)
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

// annotate patches the Node's annotation and labels where they differ from the driver's report.
func (w *Writer) annotate(ctx context.Context, node *corev1.Node, name string, i *Info) error {
	meta := map[string]any{}
	if text := withNodeID(node.Annotations[annotationIDs], name, i); text != node.Annotations[annotationIDs] {
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
		return fmt.Errorf("patch node %q for CSI driver %s: %w", w.o.Node, name, err)
	}
	return nil
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// Ensure creates the node's CSINode if there is none, and queues all registered drivers for it. The scheduler needs the
// object even before the first driver registers: without it, the scheduler knows no limits. An existing object gets the
// list of migrated plugins.
func (w *Writer) Ensure(ctx context.Context, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	current, err := w.o.Client.StorageV1().CSINodes().Get(ctx, w.o.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = w.create(ctx, node, []storagev1.CSINodeDriver{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			w.queueAll()
			return nil
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("get CSINode %q: %w", w.o.Node, err)
	}
	return w.update(ctx, current, current.Spec.Drivers)
}

// update writes the drivers of a CSINode, and the list of migrated plugins, where they differ.
func (w *Writer) update(ctx context.Context, current *storagev1.CSINode, drivers []storagev1.CSINodeDriver) error {
	next := current.DeepCopy()
	next.Annotations, next.Spec.Drivers = withMigration(current.Annotations), drivers
	if reflect.DeepEqual(current, next) {
		return nil
	}
	if _, err := w.o.Client.StorageV1().CSINodes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update CSINode %q: %w", w.o.Node, err)
	}
	return nil
}

func (w *Writer) create(ctx context.Context, node *corev1.Node, drivers []storagev1.CSINodeDriver) error {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: w.o.Node, Annotations: withMigration(nil),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}, Spec: storagev1.CSINodeSpec{Drivers: drivers}}
	if _, err := w.o.Client.StorageV1().CSINodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create CSINode %q: %w", w.o.Node, err)
	}
	return nil
}

func (w *Writer) writeCSINode(ctx context.Context, node *corev1.Node, name string, i *Info) error {
	current, err := w.o.Client.StorageV1().CSINodes().Get(ctx, w.o.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && i == nil:
		return nil
	case apierrors.IsNotFound(err):
		return w.create(ctx, node, withDriver(nil, name, i))
	case err != nil:
		return fmt.Errorf("get CSINode %q: %w", w.o.Node, err)
	}
	return w.update(ctx, current, withDriver(current.Spec.Drivers, name, i))
}

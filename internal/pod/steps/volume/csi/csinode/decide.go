package csinode

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/intree"
)

// Info is a driver's report about this node (NodeGetInfo).
type Info struct {
	// NodeID is the driver's own name for the node.
	NodeID string
	// Limit is the number of volumes that the node can have attached; 0 is no limit.
	Limit int64
	// Topology has the labels that the Node gets.
	Topology map[string]string
}

// withDriver returns the drivers of a CSINode with the named one set to i, or removed if i is nil.
func withDriver(drivers []storagev1.CSINodeDriver, name string, i *Info) []storagev1.CSINodeDriver {
	rest := slices.DeleteFunc(slices.Clone(drivers), func(d storagev1.CSINodeDriver) bool { return d.Name == name })
	if i == nil {
		return rest
	}
	own := storagev1.CSINodeDriver{Name: name, NodeID: i.NodeID, TopologyKeys: slices.Sorted(maps.Keys(i.Topology))}
	if i.Limit > 0 {
		own.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(min(i.Limit, math.MaxInt32)))}
	}
	at := slices.IndexFunc(drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name })
	if at < 0 {
		at = len(rest)
	}
	return slices.Insert(rest, at, own)
}

// withMigration returns the annotations of a CSINode with the list of in-tree plugins whose volumes this node serves
// through CSI drivers. Without the list, the control plane does not attach these volumes to the node.
func withMigration(annotations map[string]string) map[string]string {
	list := strings.Join(intree.Plugins(), ",")
	if annotations[corev1.MigratedPluginsAnnotationKey] == list {
		return annotations
	}
	next := map[string]string{corev1.MigratedPluginsAnnotationKey: list}
	for key, value := range annotations {
		if key != corev1.MigratedPluginsAnnotationKey {
			next[key] = value
		}
	}
	return next
}

// withNodeID returns the value of annotationIDs with the driver's id for the node, or without it if i is nil. It
// replaces a value that is not valid JSON.
func withNodeID(text, name string, i *Info) string {
	ids := map[string]string{}
	if json.Unmarshal([]byte(text), &ids) != nil || ids == nil {
		ids = map[string]string{}
	}
	delete(ids, name)
	if i != nil {
		ids[name] = i.NodeID
	}
	if len(ids) == 0 {
		return ""
	}
	out, _ := json.Marshal(ids) // a map of strings always has JSON
	return string(out)
}

// collision is the error for a driver that reports another topology than the Node's labels have.
type collision struct{ key, reported, existing string }

func (e *collision) Error() string {
	return fmt.Sprintf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", e.key,
		e.reported, e.key, e.existing)
}

// checkLabels returns a collision if a label of the Node differs from the driver's topology.
func checkLabels(labels, topology map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(topology)) {
		if existing, ok := labels[key]; ok && existing != topology[key] {
			return &collision{key, topology[key], existing}
		}
	}
	return nil
}

// refused reports whether the API server rejects the driver, so that a retry does not help. It may accept the driver
// later if it is unreachable now or has no such Node yet.
func refused(err error) bool {
	_, collides := errors.AsType[*collision](err)
	return collides || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// retryDelay is the time until the next try after a number of failures in a row, at least one. random, in [0, 1), adds
// up to a quarter, so that many nodes do not retry at the same moment.
func retryDelay(failures int, random float64) time.Duration {
	base := retry.Delay(200*time.Millisecond, 10*time.Second, failures)
	return base + time.Duration(random*float64(base)/4)
}

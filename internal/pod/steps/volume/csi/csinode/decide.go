package csinode

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Info is what a driver says of this node.
type Info struct {
	// NodeID is the driver's own name for the node.
	NodeID string
	// Limit of volumes; 0 for none.
	Limit    int64
	Topology map[string]string
}

// listed is the drivers of a CSINode with one as it is now, or without it for nil.
func listed(drivers []storagev1.CSINodeDriver, name string, i *Info) []storagev1.CSINodeDriver {
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

// annotated is the Node's annotation with a driver's id, or without it for nil. What
// cannot be read is begun anew.
func annotated(text, name string, i *Info) string {
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
	out, _ := json.Marshal(ids) // strings cannot fail
	return string(out)
}

// collision is why a driver cannot be a node's whose labels say otherwise.
type collision struct{ key, reported, has string }

func (e *collision) Error() string {
	return fmt.Sprintf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", e.key,
		e.reported, e.key, e.has)
}

// clash is the topology label that the Node has with another value.
func clash(labels, topology map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(topology)) {
		if has, ok := labels[key]; ok && has != topology[key] {
			return &collision{key, topology[key], has}
		}
	}
	return nil
}

// refuses says that the cluster does not take what it was told: to tell it again
// changes nothing. One that is away, or does not know of the Node yet, may take it.
func refuses(err error) bool {
	_, clashes := errors.AsType[*collision](err)
	return clashes || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// pause is the time to the next try of what could not be told, after so many
// failures in a row, at least one; random, below 1, has many nodes not come at once.
func pause(failures int, random float64) time.Duration {
	base := min(200*time.Millisecond<<min(failures-1, 10), 10*time.Second)
	return base + time.Duration(random*float64(base)/4)
}

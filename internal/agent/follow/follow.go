package follow

import (
	"context"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/model/object"
)

// Objects are the objects that pods name.
type Objects struct {
	Local   *object.Table
	Cluster *wake.Set[object.Key] // the objects of the cluster that have changed
	Fleet   fleet
	Volumes volumes
}

// fleet has the pods of this node.
type fleet interface {
	// ObjectsChanged retries the parts of pods that wait for these objects.
	ObjectsChanged(map[object.Key]bool)
}

// volumes show objects as files.
type volumes interface {
	// Changed updates the volumes that show these objects.
	Changed(map[object.Key]bool)
}

// RunLocal retries the parts of pods that wait for an object of a manifest when the object appears or changes.
func (o Objects) RunLocal(ctx context.Context) error {
	watcher := o.Local.Watch()
	defer watcher.Stop()
	for {
		changes, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		keys := map[object.Key]bool{}
		for _, c := range changes {
			keys[c.Key] = true
		}
		o.Fleet.ObjectsChanged(keys)
	}
}

// RunCluster retries the parts of pods that wait for changed objects of the cluster. It updates the volumes that show
// the objects.
func (o Objects) RunCluster(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.Cluster.C():
		}
		keys := o.Cluster.Take()
		o.Fleet.ObjectsChanged(keys)
		o.Volumes.Changed(keys)
	}
}

// Addresses are the addresses of the machine.
type Addresses struct {
	// Changed receives after the addresses have changed.
	Changed  <-chan struct{}
	Node     *nodeobject.Latest
	Statuses statuses
}

// statuses are published again after a change of what they show.
type statuses interface {
	// MarkAll marks the status of every pod as out of date.
	MarkAll()
}

// Run publishes new addresses of the machine: in the Node object and in the statuses of pods.
func (a Addresses) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.Changed:
		}
		a.Node.UpdateSoon()
		a.Statuses.MarkAll()
	}
}

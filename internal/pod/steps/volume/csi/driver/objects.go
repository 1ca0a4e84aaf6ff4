package driver

import (
	"context"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
)

// objects are the CSIDriver objects of the cluster. The watch starts at the first lookup, so that a node without CSI
// volumes costs the API server nothing.
type objects struct {
	needed wake.Signal // set by each lookup of an object

	mu     sync.Mutex
	names  map[string]bool // looked up so far
	store  cache.Store     // nil before the first list
	synced bool
	// restored is from the last contact with the API server. A nil object: the driver had none.
	restored map[string]*storagev1.CSIDriver
}

func newObjects() objects { return objects{needed: wake.New(), names: map[string]bool{}} }

// get returns the object of a driver, or nil if there is none. known is false if neither the API server nor a restored
// record has answered that.
func (o *objects) get(name string) (d *storagev1.CSIDriver, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names[name] = true
	if !o.synced {
		o.needed.Wake()
		d, known = o.restored[name]
		return d, known
	}
	if found, ok, err := o.store.GetByKey(name); ok && err == nil {
		d, _ = found.(*storagev1.CSIDriver)
	}
	return d, true
}

// CSIDriver is Object for a step that waits until the object is known. It returns nil on a node without a cluster.
func (r *Registry) CSIDriver(name string) (*storagev1.CSIDriver, error) {
	if r.o.Client == nil {
		return nil, nil
	}
	d, known := r.objects.get(name)
	if !known {
		return nil, &object.Unknown{Key: Key(name)}
	}
	return d, nil
}

// Object returns the CSIDriver object of a driver, or nil if the driver has none. known is false until the API server
// has answered or Restore was called for the driver.
func (r *Registry) Object(name string) (d *storagev1.CSIDriver, known bool) {
	return r.objects.get(name)
}

// Restore sets the objects from the last contact with the API server, nil for a driver without one. They count until
// the API server answers.
func (r *Registry) Restore(objects map[string]*storagev1.CSIDriver) {
	r.objects.mu.Lock()
	r.objects.restored = objects
	r.objects.mu.Unlock()
	for name := range objects {
		r.wake(name)
	}
}

// watchObjects watches the CSIDriver objects from the first lookup until ctx ends.
func (r *Registry) watchObjects(ctx context.Context) {
	if r.o.Client == nil {
		return
	}
	select {
	case <-r.objects.needed.C():
	case <-ctx.Done():
		return
	}
	changed := func(o any) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if d, ok := o.(*storagev1.CSIDriver); ok {
			r.wake(d.Name)
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(r.o.Client.StorageV1().RESTClient(), "csidrivers", "",
			fields.Everything()),
		ObjectType: &storagev1.CSIDriver{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, o any) {
			changed(o)
		}, DeleteFunc: changed},
	})
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			return
		}
		r.objects.mu.Lock()
		r.objects.store, r.objects.synced = store, true
		keys := make(map[object.Key]bool, len(r.objects.names))
		for name := range r.objects.names {
			keys[Key(name)] = true
		}
		r.objects.mu.Unlock()
		if r.o.Changed != nil {
			r.o.Changed.AddAll(keys)
		}
	})
	controller.RunWithContext(ctx)
}

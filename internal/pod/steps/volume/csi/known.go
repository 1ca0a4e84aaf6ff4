package csi

import (
	"context"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-run/berth/internal/model/object"
)

// known are the CSIDriver objects of the cluster. They are watched from when the
// first is asked for: a node without CSI costs the API server nothing.
type known struct {
	asked chan struct{} // one token: somebody has

	mu     sync.Mutex
	names  map[string]bool // that were asked for
	store  cache.Store     // nil before the watch
	synced bool
	// kept are as they were when the cluster was last heard; nil: there was none.
	kept map[string]*storagev1.CSIDriver
}

// get is what is known of a driver; nil for one without an object. ok is false
// before the cluster has told, now or the last time.
func (w *known) get(name string) (d *storagev1.CSIDriver, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = true
	if !w.synced {
		select {
		case w.asked <- struct{}{}:
		default:
		}
		d, ok = w.kept[name]
		return d, ok
	}
	if found, there, err := w.store.GetByKey(name); there && err == nil {
		d, _ = found.(*storagev1.CSIDriver)
	}
	return d, true
}

// object is Object for what waits with the error until the cluster has told.
func (k *registry) object(name string) (*storagev1.CSIDriver, error) {
	if k.o.Client == nil {
		return nil, nil
	}
	d, ok := k.known.get(name)
	if !ok {
		return nil, &object.Unknown{Key: driverKey(name)}
	}
	return d, nil
}

// Object is the CSIDriver object of a driver as it is known; nil: there is none. known
// is false before the cluster has told.
func (k *registry) Object(driver string) (d *storagev1.CSIDriver, known bool) {
	return k.known.get(driver)
}

// Restore has drivers have the objects that they had when the cluster was last heard,
// nil for none, until it tells.
func (k *registry) Restore(objects map[string]*storagev1.CSIDriver) {
	k.known.mu.Lock()
	k.known.kept = objects
	k.known.mu.Unlock()
	for name := range objects {
		k.wake(name)
	}
}

// watchDrivers follows the CSIDriver objects until ctx ends.
func (k *registry) watchDrivers(ctx context.Context) {
	if k.o.Client == nil {
		return
	}
	select {
	case <-k.known.asked:
	case <-ctx.Done():
		return
	}
	changed := func(o any) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if d, ok := o.(*storagev1.CSIDriver); ok {
			k.wake(d.Name)
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(k.o.Client.StorageV1().RESTClient(), "csidrivers", "",
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
		k.known.mu.Lock()
		k.known.store, k.known.synced = store, true
		names := k.known.names
		keys := make(map[object.Key]bool, len(names))
		for name := range names {
			keys[driverKey(name)] = true
		}
		k.known.mu.Unlock()
		if k.o.Changed != nil {
			k.o.Changed(keys)
		}
	})
	controller.RunWithContext(ctx)
}

package objects

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubeclient "k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
)

// listTimeout limits one read.
const listTimeout = 30 * time.Second

// readInterval is the default time between two reads of an object that is not watched.
const readInterval = time.Minute

// Delays between two reads of a claim that has no volume yet.
const (
	pendingFirst = 500 * time.Millisecond
	pendingMax   = 10 * time.Second
)

// resource reads objects of a kind.
type resource struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

type typed[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func of[L runtime.Object](t typed[L]) resource {
	return resource{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return t.List(ctx, o)
	}, t.Watch}
}

// got reads one object by its name, for kinds that a node may not list.
func got[T runtime.Object](get func(context.Context, string, metav1.GetOptions) (T, error), name string) resource {
	return resource{list: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		o, err := get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return &corev1.List{}, nil
		}
		if err != nil {
			return nil, err
		}
		return &corev1.List{Items: []runtime.RawExtension{{Object: o}}}, nil
	}}
}

func source(client kubeclient.Interface, key object.Key) resource {
	core := client.CoreV1()
	switch key.Kind {
	case object.ConfigMap:
		return of(core.ConfigMaps(key.Namespace))
	case object.Secret:
		return of(core.Secrets(key.Namespace))
	case object.RuntimeClass:
		return of(client.NodeV1().RuntimeClasses())
	case object.PersistentVolumeClaim:
		return got(core.PersistentVolumeClaims(key.Namespace).Get, key.Name)
	case object.PersistentVolume:
		return got(core.PersistentVolumes().Get, key.Name)
	case object.ClusterTrustBundle:
		return of(client.CertificatesV1beta1().ClusterTrustBundles())
	case object.PodCertificateRequest:
		return of(client.CertificatesV1beta1().PodCertificateRequests(metav1.NamespaceAll))
	}
	return of(core.Services(key.Namespace))
}

// follower keeps the state of one key up to date.
type follower struct {
	cluster *Cluster
	key     object.Key
	from    resource
	cancel  context.CancelFunc
	reread  wake.Signal // another user names the key
	retry   wake.Signal // the API server answers other followers

	version  string // of the list or the last event: where a watch continues
	settled  bool
	stored   string // the state of the object in the table
	failures int    // in a row; guarded by Cluster.mu
	polls    int    // of an unwatched object since its last change
}

func (f *follower) refresh() { f.reread.Wake() }

// run follows the object until ctx ends.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.sync(ctx)
		if ctx.Err() != nil {
			return
		}
		var pause time.Duration
		switch {
		case err == nil && f.watches():
			continue // the API server ends every watch after a while
		case err == nil:
			pause = f.period()
		case expired(err):
			f.version = ""
			continue
		default:
			pause = delay(err, f.failed(err))
		}
		f.wait(ctx, pause)
	}
}

// wait returns after a pause, or at once when another pod names the object. With pause 0 it waits only for that.
func (f *follower) wait(ctx context.Context, pause time.Duration) {
	var due <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause + rand.N(pause/5+1))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
	case <-due:
	case <-f.retry.C():
	case <-f.reread.C():
		f.version = ""
	}
}

// watches reports whether the object is watched, and not polled.
func (f *follower) watches() bool {
	polled := f.cluster.cfg.Strategy != Watch && (f.key.Kind == object.ConfigMap || f.key.Kind == object.Secret)
	return f.from.watch != nil && !polled && !f.settled
}

// period returns the time to the next read of an unwatched object, or 0 if none is needed.
func (f *follower) period() time.Duration {
	c := f.cluster.cfg
	switch {
	case f.settled:
		return 0
	case f.from.watch == nil: // a claim without a volume, or a missing volume
		f.polls++
		return retry.Delay(pendingFirst, pendingMax, f.polls)
	case c.Strategy == Cache:
		return max(c.ttl(), cmp.Or(c.Sync, readInterval))
	case c.Strategy == Get:
		return cmp.Or(c.Sync, readInterval)
	}
	return readInterval
}

// ttl returns how long objects may be cached. The control plane sets it in an annotation of the Node: 0 in a small
// cluster.
func (c Config) ttl() time.Duration {
	n, ok := c.Nodes.Get(c.NodeName)
	if !ok {
		return readInterval
	}
	ttl, err := time.ParseDuration(n.Annotations[corev1.ObjectTTLAnnotationKey] + "s")
	if err != nil || ttl < 0 {
		return readInterval
	}
	return ttl
}

// selector selects the one object, or everything if the key stands for all. Of certificate requests, a node may read
// only its own.
func (f *follower) selector() string {
	switch {
	case f.key == object.CertificateRequests():
		return fields.OneTermEqualSelector("spec.nodeName", f.cluster.cfg.NodeName).String()
	case f.key.Name == object.Every:
		return ""
	}
	return fields.OneTermEqualSelector(metav1.ObjectNameField, f.key.Name).String()
}

// sync reads the object if its version is unknown, then watches it until the watch ends.
func (f *follower) sync(ctx context.Context) error {
	if f.version == "" || !f.watches() {
		if err := f.list(ctx); err != nil || !f.watches() {
			return err
		}
	}
	w, err := f.from.watch(ctx,
		metav1.ListOptions{FieldSelector: f.selector(), ResourceVersion: f.version, AllowWatchBookmarks: true})
	if err != nil {
		return fmt.Errorf("watch %s: %w", f.key, err)
	}
	defer w.Stop()
	f.answered()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-w.ResultChan():
			if !open && time.Since(began) < time.Second {
				return fmt.Errorf("watch %s: the API server ended it at once", f.key)
			}
			if !open {
				return nil
			}
			if err := f.event(e); err != nil || f.settled {
				return err
			}
		}
	}
}

func (f *follower) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := f.from.list(ctx, metav1.ListOptions{FieldSelector: f.selector()})
	if err != nil {
		return fmt.Errorf("read %s: %w", f.key, err)
	}
	f.answered()
	var items []object.Value
	err = meta.EachListItem(list, func(o runtime.Object) error {
		v, ok := o.(object.Value)
		if !ok {
			return fmt.Errorf("read %s: the API server sent a %T", f.key, o)
		}
		items = append(items, v)
		return nil
	})
	if err != nil {
		return err
	}
	if l, ok := list.(metav1.ListInterface); ok {
		f.version = l.GetResourceVersion()
	}
	f.replace(items)
	return nil
}

func (f *follower) event(e watch.Event) error {
	if e.Type == watch.Error {
		return fmt.Errorf("watch %s: %w", f.key, apierrors.FromObject(e.Object))
	}
	v, ok := e.Object.(object.Value)
	if !ok {
		return fmt.Errorf("watch %s: the API server sent a %T", f.key, e.Object)
	}
	f.version = v.GetResourceVersion()
	switch {
	case e.Type == watch.Bookmark:
	case f.key.Name == object.Every || f.key.Kind == object.Service:
		f.change(v, e.Type == watch.Deleted)
	case e.Type == watch.Deleted:
		f.replace(nil)
	default:
		f.replace([]object.Value{v})
	}
	return nil
}

package nodeobject

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watch follows the object until ctx ends. A node may list and watch nodes only by its own name.
func (x *Object) watch(ctx context.Context) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, x.o.Config.Machine.Name).String()
	nodes := x.o.Watches.CoreV1().Nodes()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return nodes.Watch(ctx, o)
		},
	}
	cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(source, x.o.Watches), &corev1.Node{}, (*sink)(x),
		cache.ReflectorOptions{Name: "node"},
	).RunWithContext(ctx)
}

// sink receives the objects of the watch.
type sink Object

// Add implements cache.ReflectorStore.
func (s *sink) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *sink) Update(o any) error {
	if n, ok := o.(*corev1.Node); ok {
		(*Object)(s).receive(n, false)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *sink) Delete(o any) error {
	if n, ok := o.(*corev1.Node); ok {
		(*Object)(s).remove(n.ResourceVersion)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *sink) Replace(list []any, version string) error {
	for _, o := range list {
		if n, ok := o.(*corev1.Node); ok {
			(*Object)(s).receive(n, true)
			return nil
		}
	}
	(*Object)(s).remove(version)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *sink) Resync() error { return nil }

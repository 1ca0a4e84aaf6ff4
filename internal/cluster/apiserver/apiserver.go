package apiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Sink receives the pods, one call at a time.
type Sink interface {
	// Replace sets the complete list of this node's pods.
	Replace([]*corev1.Pod)
	// Put adds or updates a pod.
	Put(*corev1.Pod)
	// Drop removes a pod. It gets the last version.
	Drop(*corev1.Pod)
}

// Options of a Watch.
type Options struct {
	Client kubernetes.Interface
	// NodeName selects the pods.
	NodeName string
	Sink     Sink
}

// Watch follows the pods of one node.
type Watch struct{ reflector *cache.Reflector }

// New makes a Watch. It sends nothing before Run.
func New(o Options) *Watch {
	pods := o.Client.CoreV1().Pods(metav1.NamespaceAll)
	mine := fields.OneTermEqualSelector("spec.nodeName", o.NodeName).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = mine
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = mine
			return pods.Watch(ctx, options)
		},
	}
	return &Watch{cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, o.Client), &corev1.Pod{},
		store{o.Sink}, cache.ReflectorOptions{
			Name: "pods of this node", Backoff: backoff(),
		})}
}

// backoff is the delay between tries while the API server does not answer. It is short: one request of a node every
// few seconds is no load, and pods that were bound meanwhile wait for it.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
}

// Run follows the pods until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	w.reflector.RunWithContext(ctx)
	return ctx.Err()
}

// store passes on the objects that the reflector would store.
type store struct{ sink Sink }

// Add implements cache.ReflectorStore.
func (s store) Add(obj any) error { return s.put(obj) }

// Update implements cache.ReflectorStore.
func (s store) Update(obj any) error { return s.put(obj) }

// Delete implements cache.ReflectorStore.
func (s store) Delete(obj any) error {
	p, err := podOf(obj)
	if err == nil {
		s.sink.Drop(p)
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s store) Replace(list []any, _ string) error {
	pods := make([]*corev1.Pod, len(list))
	for i, obj := range list {
		var err error
		if pods[i], err = podOf(obj); err != nil {
			return err
		}
	}
	s.sink.Replace(pods)
	return nil
}

// Resync implements cache.ReflectorStore. The sink needs no repetition.
func (s store) Resync() error { return nil }

// Transformer implements cache.TransformingStore. A list that arrives as a stream is collected without managed
// fields.
func (s store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return podOf(obj) }
}

func (s store) put(obj any) error {
	p, err := podOf(obj)
	if err == nil {
		s.sink.Put(p)
	}
	return err
}

// podOf returns a pod without its managed fields, which are most of an object and useless to a node.
func podOf(obj any) (*corev1.Pod, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("watch pods: the API server sent a %T", obj)
	}
	p.ManagedFields = nil
	return p, nil
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/bench/joined"
	"github.com/berth-run/berth/bench/side"
)

// kubeletNode is a node of a cluster that the upstream kubelet runs on the machine's containerd.
type kubeletNode struct {
	pods typed.PodInterface
	node string
}

// huntKubelet starts hogs one after the other on a node of a kubelet whose pods may use hogLimit together. dir is a
// directory for all files.
func huntKubelet(ctx context.Context, dir string, count int) (h hogs, err error) {
	lines, err := hogLines()
	if err != nil {
		return h, err
	}
	o := joined.Options{Dir: dir, Lines: lines}
	if o.Binary, err = filepath.Abs(side.Binary); err != nil {
		return h, err
	}
	if o.Archive, err = filepath.Abs(side.Archive); err != nil {
		return h, err
	}
	stamps := filepath.Join(dir, "stamps")
	if err := os.Mkdir(stamps, 0o755); err != nil {
		return h, err
	}
	return h, joined.WithKubelet(ctx, o, func(client kubernetes.Interface, namespace, node string) error {
		k := kubeletNode{client.CoreV1().Pods(namespace), node}
		return h.run(ctx, k, stamps, joined.KubeletCgroup, count)
	})
}

// start implements node.
func (k kubeletNode) start(ctx context.Context, name, manifest string) error {
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(manifest), &p); err != nil {
		return err
	}
	p.Spec.NodeName = k.node
	if _, err := k.pods.Create(ctx, &p, metav1.CreateOptions{}); err != nil {
		return err
	}
	return k.await(ctx, name, nil, func(_ watch.EventType, p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning
	})
}

// ended implements node.
func (k kubeletNode) ended(ctx context.Context, name string) (evicted bool, err error) {
	err = k.await(ctx, name, nil, func(_ watch.EventType, p *corev1.Pod) (ended bool) {
		evicted, ended = howEnded(p)
		return ended
	})
	return evicted, err
}

// remove implements node.
func (k kubeletNode) remove(ctx context.Context, name string) error {
	remove := func() error { return k.pods.Delete(ctx, name, metav1.DeleteOptions{}) }
	return k.await(ctx, name, remove, func(e watch.EventType, _ *corev1.Pod) bool { return e == watch.Deleted })
}

// await watches a pod, calls act if it is not nil, and waits until a condition holds.
func (k kubeletNode) await(ctx context.Context, name string, act func() error,
	holds func(watch.EventType, *corev1.Pod) bool) error {
	ctx, cancel := context.WithTimeout(ctx, side.Patience)
	defer cancel()
	w, err := k.pods.Watch(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return err
	}
	defer w.Stop()
	if act != nil {
		if err := act(); err != nil {
			return err
		}
	}
	var last *corev1.Pod
	for e := range w.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		if ok && holds(e.Type, p) {
			return nil
		}
		last = p
	}
	return fmt.Errorf("wait for pod %s: %w, its last status: %+v", name, ctx.Err(), last)
}

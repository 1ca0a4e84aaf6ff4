package joined

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// pod is a pod that the scheduler may bind only to this node.
func (b *bench) pod(n *node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace, Labels: map[string]string{"node": n.name}},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: n.name},
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "app", Image: image,
				ImagePullPolicy: corev1.PullNever, Args: []string{"sleep"}}},
		},
	}
}

// startPods creates all pods of a round at once, and returns the time until a watch has shown each as Running.
func (b *bench) startPods(ctx context.Context, n *node) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := b.client.CoreV1().Pods(b.namespace)
	w, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: "node=" + n.name})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	begin := time.Now()
	var creating errgroup.Group
	creating.SetLimit(8)
	for i := range b.options.Pods {
		creating.Go(func() error {
			_, err := pods.Create(ctx, b.pod(n, fmt.Sprintf("%s-%d", n.name, i)), metav1.CreateOptions{})
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		return 0, err
	}
	running := map[string]bool{}
	for e := range w.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			return 0, fmt.Errorf("watch pods: unexpected object %v", e.Object)
		}
		if p.Status.Phase == corev1.PodRunning {
			running[p.Name] = true
		}
		if len(running) == b.options.Pods {
			return time.Since(begin), nil
		}
	}
	return 0, fmt.Errorf("%d of %d pods run: %w", len(running), b.options.Pods, ctx.Err())
}

// removePods deletes the pods of a node and waits until the API server has removed them.
func (b *bench) removePods(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods, of := b.client.CoreV1().Pods(b.namespace), metav1.ListOptions{LabelSelector: "node=" + n.name}
	list, err := pods.List(ctx, of)
	if err != nil {
		return err
	}
	of.ResourceVersion = list.ResourceVersion
	w, err := pods.Watch(ctx, of)
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: of.LabelSelector}); err != nil {
		return err
	}
	for left := len(list.Items); left > 0; {
		e, ok := <-w.ResultChan()
		if !ok {
			return fmt.Errorf("wait for the deletion of %d pods of node %s: %w", left, n.name, ctx.Err())
		}
		if e.Type == watch.Deleted {
			left--
		}
	}
	return nil
}

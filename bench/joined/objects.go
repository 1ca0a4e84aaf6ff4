package joined

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/internal/base/retry"
)

// objects measures the memory of the nodes' watches of ConfigMaps and Secrets, which have a watch each.
func (b *bench) objects(ctx context.Context, nodes []*node) error {
	made := 0
	for _, many := range b.options.Objects {
		for ; made < many; made++ {
			if err := b.makeObjects(ctx, made); err != nil {
				return err
			}
		}
		for _, n := range nodes {
			if err := b.watched(ctx, n, many); err != nil {
				return fmt.Errorf("%d ConfigMaps and Secrets on node %s: %w", many, n.name, err)
			}
		}
	}
	return nil
}

// size is the length of each object's content in bytes.
const size = 1 << 10

func (b *bench) makeObjects(ctx context.Context, i int) error {
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("o-%d", i)}
	content := strings.Repeat("x", size)
	if _, err := b.client.CoreV1().ConfigMaps(b.namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{meta.Name: content}},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := b.client.CoreV1().Secrets(b.namespace).Create(ctx,
		&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"s" + meta.Name: content}},
		metav1.CreateOptions{})
	return err
}

// watched runs a pod on a node that mounts so many objects of each kind, and measures the agent's memory after settle.
func (b *bench) watched(ctx context.Context, n *node, many int) error {
	p := b.pod(n, n.name)
	sources := make([]corev1.VolumeProjection, 0, 2*many)
	for i := range many {
		name := corev1.LocalObjectReference{Name: fmt.Sprintf("o-%d", i)}
		sources = append(sources,
			corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name}},
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: name}})
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "objects",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "objects", MountPath: "/objects"}}
	before, err := b.watches(ctx)
	if err != nil {
		return err
	}
	pods := b.client.CoreV1().Pods(b.namespace)
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return err
	}
	err = poll(ctx, "pod "+p.Name+" runs", func(ctx context.Context) (bool, error) {
		now, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodRunning, err
	})
	if err != nil {
		return err
	}
	if err := retry.Sleep(ctx, 2*settle); err != nil {
		return err
	}
	w := Watched{Objects: 2 * many}
	after, err := b.watches(ctx)
	if err != nil {
		return err
	}
	w.Watches = after - before
	if w.RSS, w.Private, err = proc.Memory(n.agent); err != nil {
		return err
	}
	n.result.Watched = append(n.result.Watched, w)
	if err := b.removePods(ctx, n); err != nil {
		return err
	}
	return poll(ctx, "the watches of node "+n.name+" end", func(ctx context.Context) (bool, error) {
		now, err := b.watches(ctx)
		return now <= before, err
	})
}

// watches is the number of watches of ConfigMaps and Secrets that the API server has now, from all clients.
func (b *bench) watches(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := b.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_longrunning_requests{") ||
			!strings.Contains(line, `resource="configmaps"`) && !strings.Contains(line, `resource="secrets"`) {
			continue
		}
		var n float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
			return 0, fmt.Errorf("read %q: %w", line, err)
		}
		total += int(n)
	}
	return total, nil
}

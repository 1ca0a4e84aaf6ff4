package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/api/client"
)

// The numbers of objects that a pod of the objects row mounts.
const (
	configMaps = 10
	secrets    = 5
)

// objects compares the start of a pod of three containers that mounts ConfigMaps and Secrets with the start of the same
// pod without them. Berth runs both. The objects exist before the pods.
func (b *bench) objects(ctx context.Context) (err error) {
	edit := func(*corev1.Pod) {}
	var objects []string
	for i := range configMaps + secrets {
		name, source := fmt.Sprintf("o%d", i), corev1.VolumeSource{}
		var object any
		meta := metav1.ObjectMeta{Name: name, Namespace: side.Namespace}
		if i < configMaps {
			source.ConfigMap = &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name}}
			object = configMap(name, "value")
		} else {
			source.Secret = &corev1.SecretVolumeSource{SecretName: name}
			object = &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta,
				StringData: map[string]string{"key": "value"}}
		}
		if err := b.berth.Write(name, object); err != nil {
			return err
		}
		objects = append(objects, name)
		before := edit
		edit = func(p *corev1.Pod) { before(p); mount(p, name, source) }
	}
	plain := side.Shape{Containers: 3}
	full := side.Shape{Containers: 3, Edit: edit}
	b.results.Objects, err = alternate(ctx, b.pods, way{b.berth, full, "full"}, way{b.berth, plain, "plain"}, nil)
	for _, name := range objects {
		err = errors.Join(err, os.Remove(b.berth.Manifest(name)))
	}
	return err
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: side.Namespace}, Data: map[string]string{"key": value},
	}
}

// mount mounts a volume into all containers of a pod.
func mount(p *corev1.Pod, name string, source corev1.VolumeSource) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/objects/" + name})
	}
}

// liveUpdate edits a ConfigMap that many pods mount, and waits each time until the file of the last pod has changed.
func (b *bench) liveUpdate(ctx context.Context) error {
	const prefix, name = "live", "shared"
	if err := b.berth.Write(name, configMap(name, "0")); err != nil {
		return err
	}
	s := side.Shape{Edit: func(p *corev1.Pod) {
		mount(p, name,
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
	}}
	if _, err := b.berth.Start(ctx, prefix, b.many, s, 0); err != nil {
		return err
	}
	files, err := newFiles(ctx, b.berth, name)
	if err != nil {
		return err
	}
	defer func() { _ = files.notify.Close() }()
	var took []time.Duration
	for i := range b.updates {
		value := fmt.Sprint(i + 1)
		begin := time.Now()
		if err := b.berth.Write(name, configMap(name, value)); err != nil {
			return err
		}
		last, err := files.all(ctx, value)
		if err != nil {
			return err
		}
		took = append(took, last.Sub(begin))
	}
	b.results.Update = update{Pods: b.many, Took: summarise(took)}
	if _, err := b.berth.Remove(ctx, prefix, b.many, 0); err != nil {
		return err
	}
	return os.Remove(b.berth.Manifest(name))
}

// volumeFiles are the directories of one volume in all pods.
type volumeFiles struct {
	notify *fsnotify.Watcher
	dirs   []string
}

func newFiles(ctx context.Context, b *side.Berth, volume string) (*volumeFiles, error) {
	pods, err := b.Client.Pods(ctx, client.Select{Namespace: side.Namespace})
	if err != nil {
		return nil, err
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	f := &volumeFiles{notify: notify}
	for _, p := range pods.Items {
		dir := filepath.Join(b.Root, "pods", string(p.UID), "volumes", "kubernetes.io~configmap", volume)
		if err := notify.Add(dir); err != nil {
			return nil, errors.Join(err, notify.Close())
		}
		f.dirs = append(f.dirs, dir)
	}
	return f, nil
}

// all waits until the key has this value in every directory, and returns the time of the last change.
func (f *volumeFiles) all(ctx context.Context, value string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, side.Patience)
	defer cancel()
	missing := map[string]bool{}
	for _, dir := range f.dirs {
		missing[dir] = true
	}
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for %q in %d pods: %w", value, len(missing), ctx.Err())
		case e := <-f.notify.Events:
			dir := filepath.Dir(e.Name)
			if text, err := os.ReadFile(filepath.Join(dir, "key")); err == nil && string(text) == value {
				delete(missing, dir)
			}
		}
	}
	return time.Now(), nil
}

// update is the time from the edit of a ConfigMap until the last of the pods that mount it has the new value.
type update struct {
	Pods int     `json:"pods"`
	Took summary `json:"took"`
}

func objectRows(p *page, r results) {
	if r.Objects.Berth.N > 0 {
		p.line(
			"\n## A pod of 3 containers with %d ConfigMap and %d Secret volumes beside the same pod without, in ms\n",
			configMaps, secrets)
		p.line("| what | with p50 (min, p90) | without p50 (min, p90) | ratio | goal |")
		p.line("|---|---|---|---|---|")
		r.Objects.row(p, "start, to the last container")
	}
	if u := r.Update; u.Pods > 0 {
		p.line("\n## From the edit of a ConfigMap to the last of %d pods that mount it, in ms\n", u.Pods)
		p.line("| what | p50 | max | goal |")
		p.line("|---|---|---|---|")
		p.line("| files of running pods, n=%d | %.1f | %.1f | 1000 |", u.Took.N, u.Took.P50, u.Took.Max)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/model/object"
)

// check waits until everything is there that was confirmed, nothing else is, and every pod is ready. It gives up
// without an error if the file system has become read-only.
func (l *life) check(ctx context.Context) error {
	return l.agent.until(ctx, "everything confirmed", func() error {
		if l.disk.readOnly() {
			return nil
		}
		found, unready, err := l.found(ctx)
		if err == nil {
			err = l.ledger.Check(found)
		}
		if err == nil && len(unready) > 0 {
			err = fmt.Errorf("not ready: %s", strings.Join(unready, "; "))
		}
		return err
	})
}

// found returns the value of each thing on the node, and the pods that are not ready.
func (l *life) found(ctx context.Context) (found map[string]string, unready []string, err error) {
	found = map[string]string{}
	pods, err := l.client.Pods(ctx, client.Select{})
	if err != nil {
		return nil, nil, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		name := "pod/" + p.Name
		if static, ok := strings.CutSuffix(p.Name, "-node1"); ok {
			name = "manifest/" + static
		}
		found[name] = p.Annotations[annotation]
		if !ready(p) {
			unready = append(unready, fmt.Sprintf("%s %s %v", p.Name, p.Status.Phase, p.Status.ContainerStatuses))
		}
	}
	for _, kind := range object.Kinds() {
		if kind.Name != object.ConfigMap && kind.Name != object.PersistentVolumeClaim {
			continue
		}
		all, err := l.client.Objects(kind).List(ctx, client.Select{})
		if err != nil {
			return nil, nil, err
		}
		for _, v := range all.Items {
			switch v := v.(type) {
			case *corev1.ConfigMap:
				found["config/"+v.Name] = v.Data["value"]
			case *corev1.PersistentVolumeClaim:
				found["claim/"+v.Name] = v.Annotations[annotation]
			}
		}
	}
	for name := range l.ledger {
		claim, ok := strings.CutPrefix(name, "data/")
		if !ok {
			continue
		}
		if found[name], err = l.stored(ctx, claim); err != nil {
			return nil, nil, err
		}
	}
	return found, unready, nil
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// stored returns the content of a claim's file, or nothing if there is none.
func (l *life) stored(ctx context.Context, claim string) (string, error) {
	dir, err := l.volume(ctx, claim)
	if err != nil || dir == "" {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "value"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// volume returns the directory of a claim's volume, or nothing if it has none.
func (l *life) volume(ctx context.Context, claim string) (string, error) {
	var volume string
	for _, kind := range object.Kinds() {
		var key object.Key
		switch {
		case kind.Name == object.PersistentVolumeClaim:
			key = kind.Key("default", claim)
		case kind.Name == object.PersistentVolume && volume != "":
			key = kind.Key("", volume)
		default:
			continue
		}
		v, err := l.client.Objects(kind).Get(ctx, key)
		if err != nil {
			return "", ignoreAbsent(err)
		}
		switch v := v.(type) {
		case *corev1.PersistentVolumeClaim:
			volume = v.Spec.VolumeName
		case *corev1.PersistentVolume:
			switch {
			case v.Spec.HostPath != nil:
				return v.Spec.HostPath.Path, nil
			case v.Spec.Local != nil:
				return v.Spec.Local.Path, nil
			}
		}
	}
	return "", nil
}

func ignoreAbsent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

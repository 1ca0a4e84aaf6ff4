package status

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/worker"
)

func TestAwaited(t *testing.T) {
	config := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "app"}
	secret := object.Key{Kind: object.Secret, Namespace: "default", Name: "app"}
	missing := reason.Wrap(reason.FailedMount, errors.Join(
		fmt.Errorf("mount volume: %w", &object.Missing{Key: secret}),
		fmt.Errorf("mount volume: %w", &object.Missing{Key: config}), &object.Missing{Key: config}))
	lacking := &object.Lacking{Key: config, Err: errors.New("no key x")}
	tests := []struct {
		name     string
		failures map[string]error
		message  string
		ok       bool
	}{
		{"nothing",
			map[string]error{"step/volume": errors.New("disk full"), "container/app": &object.Missing{Key: config}}, "",
			false},
		{"objects", map[string]error{"step/volume": missing}, "waiting for ConfigMap default/app, Secret default/app",
			true},
		{"a volume",
			map[string]error{"step/volume": reason.Wrap(reason.FailedMount,
				worker.RetryAt(time.Time{}, errors.New("waiting for the volume to be attached")))},
			"waiting for the volume to be attached", true},
		{"a key", map[string]error{"step/volume": lacking}, "waiting for ConfigMap default/app: no key x", true},
	}
	for _, test := range tests {
		for want, p := range map[string]*corev1.Pod{
			reason.ContainerCreating: {},
			reason.PodInitializing:   {Spec: corev1.PodSpec{InitContainers: []corev1.Container{{}}}},
		} {
			why, message, ok := Awaited(p, worker.State{Failures: test.failures})
			if ok != test.ok || ok && (why != want || message != test.message) {
				t.Errorf("%s: %s, %q, %v", test.name, why, message, ok)
			}
		}
	}
}

// A container shows what is wrong with the image of a volume.
func TestAwaitedImage(t *testing.T) {
	never := reason.New(reason.ErrImageNeverPull, "it is not here")
	failed := reason.Wrap(reason.FailedMount,
		errors.Join(errors.New("disk full"), fmt.Errorf("mount volume: %w", worker.RetryAt(time.Time{}, never))))
	why, message, ok := Awaited(&corev1.Pod{}, worker.State{Failures: map[string]error{"step/volume": failed}})
	if !ok || why != reason.ErrImageNeverPull || message != "it is not here" {
		t.Errorf("%s, %q, %v", why, message, ok)
	}
}

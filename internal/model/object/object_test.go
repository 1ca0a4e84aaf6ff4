package object

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/store"
)

func TestObjects(t *testing.T) {
	table := store.New[Key, runtime.Object]()
	objects := New(table)
	_, err := objects.ConfigMap("default", "app")
	missing, ok := errors.AsType[*Missing](err)
	if !ok || missing.Key != (Key{ConfigMap, "default", "app"}) || err.Error() != "waiting for ConfigMap default/app" {
		t.Errorf("no object: %v", err)
	}
	want := &corev1.ConfigMap{}
	table.Put(Key{ConfigMap, "default", "app"}, want)
	if got, err := objects.ConfigMap("default", "app"); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := objects.Secret("default", "app"); err == nil || err.Error() != "waiting for Secret default/app" {
		t.Errorf("an object of another kind: %v", err)
	}
}

func TestJoined(t *testing.T) {
	table, key := store.New[Key, runtime.Object](), Key{Secret, "default", "app"}
	heard := false
	objects := Joined(table, func(k Key) bool { return heard && k == key })
	_, err := objects.Secret("default", "app")
	keys, only := Waits(err)
	if !only || len(keys) != 1 || keys[0] != key ||
		err.Error() != "waiting for the API server's answer about Secret default/app" {
		t.Errorf("before the cluster has reported: %v, waits for %v", err, keys)
	}
	heard = true
	if _, err := objects.Secret("default", "app"); err == nil || err.Error() != "waiting for Secret default/app" {
		t.Errorf("a missing object: %v", err)
	}
	heard = false
	table.Put(key, &corev1.Secret{})
	if _, err := objects.Secret("default", "app"); err != nil {
		t.Errorf("an object in the table: %v", err)
	}
}

func TestUnanswered(t *testing.T) {
	unknown := &Unknown{Key{ConfigMap, "default", "app"}}
	for want, errs := range map[bool][]error{
		true: {unknown, fmt.Errorf("mount: %w", errors.Join(unknown, unknown))},
		false: {nil, &Missing{unknown.Key}, errors.New("disk full"), errors.Join(unknown, errors.New("disk full")),
			&Lacking{unknown.Key, fmt.Errorf("%w: %w", unknown, errors.New("forbidden"))}},
	} {
		for _, err := range errs {
			if Unanswered(err) != want {
				t.Errorf("%v: %t", err, !want)
			}
		}
	}
}

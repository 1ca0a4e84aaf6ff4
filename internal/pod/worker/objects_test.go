package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/internal/model/object"
)

// A task that failed because of an object is retried when the object changes and not before. A change while the task
// runs is not missed.
func TestTasksWaitForObjects(t *testing.T) {
	app, other := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "app"},
		object.Key{Kind: object.Secret, Namespace: "default", Name: "app"}
	missing := fmt.Errorf("render: %w", &object.Missing{Key: app})
	for name, c := range map[string]struct {
		err    error
		during []object.Key // changes while the task runs
		after  []object.Key // changes after the task has failed
		tried  bool         // the task is retried an hour later
	}{
		"it never comes":     {err: missing},
		"another comes":      {err: missing, during: []object.Key{other}, after: []object.Key{other}},
		"it comes":           {err: missing, after: []object.Key{app}, tried: true},
		"it comes meanwhile": {err: missing, during: []object.Key{app}, tried: true},
		"it gets what it lacks": {err: &object.Lacking{Key: app, Err: errors.New("no key")}, after: []object.Key{app},
			tried: true},
		"one of two comes": {err: errors.Join(missing, &object.Missing{Key: other}), after: []object.Key{other},
			tried: true},
		"something else is wrong": {err: errors.Join(missing, errors.New("mount failed")), tried: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tasks := newTasks(time.Now, newWorker(&node{}))
				tasks.begin()
				leave := make(chan struct{})
				tasks.Go(t.Context(), "container/a", func(context.Context) error { <-leave; return c.err })
				change := func(keys []object.Key) {
					set := map[object.Key]bool{}
					for _, k := range keys {
						set[k] = true
					}
					tasks.changed(set)
				}
				change(c.during)
				close(leave)
				tasks.Wait()
				change(c.after)
				time.Sleep(time.Hour)
				tasks.begin()
				if tried := tasks.Go(t.Context(), "container/a", func(context.Context) error {
					return nil
				}); tried != c.tried {
					t.Errorf("retried: %v, want %v", tried, c.tried)
				}
				tasks.Wait()
			})
		})
	}
}

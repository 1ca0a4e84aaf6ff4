package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// retry releases the tasks whose error matches, and no other.
func TestTasksRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks, noImage := newTasks(time.Now, newWorker(&node{})), errors.New("no image")
		later := func(err error) func(context.Context) error {
			return func(context.Context) error { return RetryAt(time.Now().Add(5*time.Minute), err) }
		}
		tasks.begin()
		tasks.Go(t.Context(), "image", later(noImage))
		tasks.Go(t.Context(), "volume", later(errors.New("no mount")))
		tasks.Wait()
		tasks.begin()
		if !tasks.retry(func(err error) bool { return errors.Is(err, noImage) }) {
			t.Error("no task was released")
		}
		for key, want := range map[string]bool{"image": true, "volume": false} {
			if tried := tasks.Go(t.Context(), key, func(context.Context) error { return nil }); tried != want {
				t.Errorf("%s retried: %v", key, tried)
			}
		}
		tasks.Wait()
		if tasks.retry(func(error) bool { return false }) {
			t.Error("a task with another error was released")
		}
	})
}

package observed

import (
	"context"
	"errors"
	"testing"

	"github.com/berth-run/berth/internal/model/pod"
)

func TestObservedIsNilForAnUnknownPod(t *testing.T) {
	table := New()
	if o := table.Observed("a"); o != nil {
		t.Errorf("before the first reading: %v", o)
	}
	want := &pod.Observed{UID: "a"}
	table.Put("a", want)
	if o := table.Observed("a"); o != want {
		t.Errorf("after a reading: %v", o)
	}
}

func TestAwaitReturnsOnceTheTableIsSynced(t *testing.T) {
	table := New()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := table.Await(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("before it is synced: %v", err)
	}
	table.MarkSynced()
	table.MarkSynced()
	if err := table.Await(t.Context()); err != nil {
		t.Errorf("after it is synced: %v", err)
	}
	<-table.Synced()
}

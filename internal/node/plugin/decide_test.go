package plugin

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/retry"
)

func TestDelays(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 200 * time.Millisecond, 2: 400 * time.Millisecond,
		5: 3200 * time.Millisecond, 9: maxDelay, 1000: maxDelay} {
		if got := retry.Delay(firstDelay, maxDelay, failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}

func TestChanges(t *testing.T) {
	was := map[string]identity{"stays": {inode: 1}, "goes": {inode: 2}, "replaced": {inode: 3},
		"same inode": {inode: 4, made: 1}}
	now := map[string]identity{"stays": {inode: 1}, "comes": {inode: 2}, "replaced": {inode: 5},
		"same inode": {inode: 4, made: 2}}
	gone, come := changes(was, now)
	slices.Sort(gone)
	slices.Sort(come)
	if diff := cmp.Diff([]string{"goes", "replaced", "same inode"}, gone); diff != "" {
		t.Errorf("removed:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"comes", "replaced", "same inode"}, come); diff != "" {
		t.Errorf("added:\n%s", diff)
	}
}

package checkpoint

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/wake"
)

// saves returns when a loop saves, counted from its start. It sees changes at these times, and ends after 10 s.
func saves(t *testing.T, d Delay, changes ...time.Duration) (at []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start, changed := time.Now(), wake.New()
		for _, c := range changes {
			time.AfterFunc(c, changed.Wake)
		}
		err := SaveLater(ctx, changed.C(), d, func() { at = append(at, time.Since(start)) })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	return at
}

func TestSavesCoverSeveralChanges(t *testing.T) {
	const s = time.Second
	changes := []time.Duration{s, s + s/2, 5 * s}
	if diff := cmp.Diff([]time.Duration{2 * s, 6 * s, 10 * s}, saves(t, Delay{Before: s}, changes...)); diff != "" {
		t.Errorf("a delay before (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{s, 2 * s, 5 * s, 10 * s}, saves(t, Delay{After: s}, changes...)); diff != "" {
		t.Errorf("a delay after (-want +got):\n%s", diff)
	}
}

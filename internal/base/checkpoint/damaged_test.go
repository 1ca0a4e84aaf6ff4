package checkpoint

import (
	"errors"
	"testing"
)

func TestDamagedSplitsAJoinedError(t *testing.T) {
	a, b := &DamagedError{Path: "a"}, &DamagedError{Path: "b"}
	unreadable := errors.New("no permission")
	for _, tt := range []struct {
		err     error
		damaged int
		other   bool
	}{
		{nil, 0, false}, {a, 1, false}, {errors.Join(a, nil, b), 2, false}, {unreadable, 0, true},
		{errors.Join(a, unreadable), 1, true},
	} {
		damaged, other := Damaged(tt.err)
		if len(damaged) != tt.damaged || (other != nil) != tt.other || other != nil && !errors.Is(other, unreadable) {
			t.Errorf("Damaged(%v): %v and %v", tt.err, damaged, other)
		}
	}
}

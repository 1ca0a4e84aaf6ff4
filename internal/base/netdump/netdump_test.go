package netdump

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestCompleteAsksAgain(t *testing.T) {
	other := errors.New("other")
	for _, tt := range []struct {
		name        string
		interrupted int
		err, want   error
		calls       int
	}{
		{"complete at once", 0, nil, nil, 1},
		{"complete at last", 3, nil, nil, 4},
		{"fails", 0, other, other, 1},
		{"never complete", 1000, nil, netlink.ErrDumpInterrupted, tries},
	} {
		calls := 0
		got, err := Complete(func() ([]int, error) {
			if calls++; calls <= tt.interrupted {
				return []int{1}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, tt.err
		})
		if calls != tt.calls || !errors.Is(err, tt.want) || err == nil && len(got) != 2 {
			t.Errorf("%s: %v and %v after %d calls", tt.name, got, err, calls)
		}
	}
}

package follow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/api"
)

func TestDue(t *testing.T) {
	next := map[string]time.Duration{}
	var lines []int
	for second := range 70 {
		if due(next, api.Pull{Name: "app:1", Elapsed: float64(second)}) {
			lines = append(lines, second)
		}
	}
	if diff := cmp.Diff([]int{2, 4, 8, 16, 31, 46, 61}, lines); diff != "" {
		t.Errorf("seconds with a line (-want +got):\n%s", diff)
	}
}

package input

import (
	"testing"
	"time"
)

// A pod that is older than the agent waits for device plugins from the agent's start.
func TestPluginsBy(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	n := Node{Began: began}
	for name, test := range map[string]struct{ seen, want time.Time }{
		"an older pod": {began.Add(-time.Hour), began.Add(pluginPatience)},
		"a newer pod":  {began.Add(time.Minute), began.Add(time.Minute + pluginPatience)},
	} {
		if got := n.pluginsBy(test.seen); !got.Equal(test.want) {
			t.Errorf("%s: until %v, want %v", name, got, test.want)
		}
	}
}

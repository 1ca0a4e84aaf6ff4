package wait

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// marks records the pods whose status must be computed again, each with its message at that time.
type marks struct {
	waits *Waits
	seen  []string
}

// Mark implements statuses.
func (m *marks) Mark(uid types.UID) {
	message, _ := m.waits.Message(uid, "app")
	m.seen = append(m.seen, string(uid)+" "+message)
}

func TestOnlyAWaitThatLastsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &marks{}
		m.waits = New(m)
		short := m.waits.Begin(t.Context(), "u1", "app", "the driver", time.Second)
		time.Sleep(time.Second / 2) // the bubble's time
		short()
		long := m.waits.Begin(t.Context(), "u2", "app", "the plugin", time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		long()
		if want := []string{"u2 waiting for the plugin", "u2 "}; !slices.Equal(m.seen, want) {
			t.Errorf("marks %q, want %q", m.seen, want)
		}
	})
}

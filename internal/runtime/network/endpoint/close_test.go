package endpoint

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/berth-run/berth/internal/runtime/network/lease"
)

// A removal that begins before Close has ended when Close returns. One that would begin later fails, and leaves the
// lease for the next agent.
func TestCloseWaitsForRemovalsAndRefusesNewOnes(t *testing.T) {
	e := New(Config{Bridge: "berthtest", Leases: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	for _, id := range []string{"inflight-first", "inflight-second"} {
		if err := e.leases.Restore(id, lease.Lease{Number: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if leased, err := e.Detach("inflight-first"); !leased || err != nil {
		t.Fatalf("Detach: %v, %v", leased, err)
	}
	e.Close()
	if _, leased := e.leases.Get("inflight-first"); leased {
		t.Error("Close has returned before the removal ended")
	}
	if err := e.Await("inflight-first"); err != nil {
		t.Error(err)
	}
	if leased, err := e.Detach("inflight-second"); !leased || !errors.Is(err, errClosed) {
		t.Errorf("Detach after Close: %v, %v", leased, err)
	}
	if _, leased := e.leases.Get("inflight-second"); !leased {
		t.Error("a refused removal has dropped the lease")
	}
}

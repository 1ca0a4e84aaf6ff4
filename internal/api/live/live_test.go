package live

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/wake"
)

func TestStreamNamesWhatHasChanged(t *testing.T) {
	var images, starts, ledger, devices wake.Broadcast
	c := Changes{Images: {&images}, Starts: {&starts}, Topology: {&ledger, &devices}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.Stream(w, r); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(resp.Body)
	next := func(want ...string) {
		t.Helper()
		var line api.Changes
		if err := lines.Decode(&line); err != nil || !slices.Equal(line.Of, want) {
			t.Fatalf("%v, changes of %v, want %v", err, line.Of, want)
		}
	}
	next(Images, Starts, Topology)
	images.Wake()
	next(Images)
	devices.Wake()
	next(Topology)
	ledger.Wake()
	next(Topology)
	starts.Wake()
	next(Starts)
}

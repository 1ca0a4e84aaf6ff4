package ui

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/record/timeline"
)

// everyStart is more starts than an agent keeps.
const everyStart = 1 << 20

// startTimes has the durations of the steps of the last starts.
type startTimes struct {
	// Starts is how many starts were compared.
	Starts int        `json:"starts"`
	Since  *time.Time `json:"since,omitempty"`
	Steps  []stepTime `json:"steps"`
}

// recentStarts returns how long the steps of the last starts that became ready took.
func recentStarts(ctx context.Context, agent *client.Client) (startTimes, error) {
	all, err := client.LastTimelines(ctx, agent, everyStart)
	all = slices.DeleteFunc(all, func(l timeline.Timeline) bool { return l.State() != timeline.StateReady })
	times := startTimes{Starts: len(all), Steps: stepTimes(all)}
	if len(all) > 0 {
		times.Since = &all[0].Start
	}
	return times, err
}

// showStarts answers with the durations of the steps of the last starts.
func (s *Server) showStarts(w http.ResponseWriter, r *http.Request) {
	times, err := recentStarts(r.Context(), s.agent)
	if err != nil {
		answer.WriteError(w, err)
		return
	}
	answer.WriteJSON(w, http.StatusOK, times)
}

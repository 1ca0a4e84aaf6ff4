package ui

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/record/timeline"
)

// readyStarts returns the last starts of pods that became ready, with their spans. It leaves out the start of a pod
// that a pod of the same name has replaced.
func readyStarts(ctx context.Context, agent *client.Client) ([]timeline.Timeline, error) {
	heads, err := agent.Timelines(ctx)
	if err != nil {
		return nil, err
	}
	var all []timeline.Timeline
	for _, head := range heads {
		if head.State() != timeline.StateReady {
			continue
		}
		line, err := agent.Pod(types.NamespacedName{Namespace: head.Namespace, Name: head.Name}).Timeline(ctx)
		if err != nil {
			return nil, err
		}
		if line.UID == head.UID && line.Start.Equal(head.Start) {
			all = append(all, *line)
		}
	}
	return all, nil
}

// startTimes has the durations of the steps of the last starts.
type startTimes struct {
	// Starts is how many starts were compared.
	Starts int        `json:"starts"`
	Since  *time.Time `json:"since,omitempty"`
	Steps  []stepTime `json:"steps"`
}

// recentStarts returns how long the steps of the last starts took.
func recentStarts(ctx context.Context, agent *client.Client) (startTimes, error) {
	all, err := readyStarts(ctx, agent)
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

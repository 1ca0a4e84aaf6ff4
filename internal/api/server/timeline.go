package server

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Timelines reads the recorded starts of pods (timeline.Recorder).
type Timelines interface {
	// Find returns the latest timeline of a pod of that name.
	Find(namespace, name string) (timeline.Timeline, bool)
	// List returns all timelines, oldest first, without their spans.
	List() []timeline.Timeline
	// Last returns the latest n timelines with their spans, oldest first.
	Last(n int) []timeline.Timeline
}

// timelineRoutes shows the recorded starts of pods.
type timelineRoutes struct{ timelines Timelines }

func (s timelineRoutes) get(w http.ResponseWriter, r *http.Request) error {
	line, ok := s.timelines.Find(r.PathValue("namespace"), r.PathValue("name"))
	if !ok {
		return answer.Next(answer.Failure(http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("no start of pod %s is recorded", key(r))),
			`the last starts are kept: "berth trace" lists them, "berth get pods -A" the pods`)
	}
	answer.WriteJSON(w, http.StatusOK, line)
	return nil
}

func (s timelineRoutes) list(w http.ResponseWriter, r *http.Request) error {
	q, lines := query.Of(r), s.timelines.List()
	if n := q.Number("last", 1); n != nil {
		lines = s.timelines.Last(int(*n))
	}
	if q.Err == nil {
		answer.WriteJSON(w, http.StatusOK, api.TimelineList{TypeMeta: api.Type("TimelineList"), Items: lines})
	}
	return q.Err
}

package server

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Timelines reads the recorded starts of pods (timeline.Recorder).
type Timelines interface {
	// Find returns the latest timeline of a pod of that name.
	Find(namespace, name string) (timeline.Timeline, bool)
	// List returns all timelines, oldest first, without their spans.
	List() []timeline.Timeline
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

func (s timelineRoutes) list(w http.ResponseWriter, _ *http.Request) error {
	answer.WriteJSON(w, http.StatusOK,
		api.TimelineList{TypeMeta: api.Type("TimelineList"),
			Items: append([]timeline.Timeline{}, s.timelines.List()...)})
	return nil
}

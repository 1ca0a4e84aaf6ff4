package past

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

// Start answers GET /berth/v1/pods/{namespace}/{name}/timeline.
func (p Past) Start(w http.ResponseWriter, r *http.Request) error {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	line, ok := p.Timelines.Find(namespace, name)
	if !ok {
		return answer.Next(answer.Failure(http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("no start of pod %s/%s is recorded", namespace, name)),
			`the last starts are kept: "berth trace" lists them, "berth get pods -A" the pods`)
	}
	answer.WriteJSON(w, http.StatusOK, line)
	return nil
}

// Starts answers GET /berth/v1/timelines.
func (p Past) Starts(w http.ResponseWriter, r *http.Request) error {
	q, lines := query.Of(r), p.Timelines.List()
	if n := q.Number("last", 1); n != nil {
		lines = p.Timelines.Last(int(*n))
	}
	if q.Err == nil {
		answer.WriteJSON(w, http.StatusOK, api.TimelineList{TypeMeta: api.Type("TimelineList"), Items: lines})
	}
	return q.Err
}

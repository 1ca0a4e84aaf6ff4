package past

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/node/history"
	"github.com/berth-run/berth/internal/record/lifeline"
)

// History reads the past usage of the node (history.History).
type History interface {
	Since(after int64) []history.Sample
	Watch(ctx context.Context, after int64) iter.Seq[[]history.Sample]
}

// Lifelines reads when containers ran (lifeline.Recorder).
type Lifelines interface {
	Find(key types.NamespacedName) (lifeline.Lifeline, bool)
}

// Past answers requests about the past. All fields are required.
type Past struct {
	History   History
	Lifelines Lifelines
	Timelines Timelines
}

// Node answers GET /berth/v1/history.
func (p Past) Node(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	follow := q.Flag("follow", false)
	after := int64(0)
	if t := q.Time("sinceTime"); t != nil {
		after = t.Unix()
	}
	if q.Err != nil {
		return q.Err
	}
	if !follow {
		answer.WriteJSON(w, http.StatusOK, listOf(p.History.Since(after)))
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	lines, flusher := json.NewEncoder(w), http.NewResponseController(w)
	for some := range p.History.Watch(r.Context(), after) {
		if lines.Encode(listOf(some)) != nil || flusher.Flush() != nil {
			return nil // the client is gone
		}
	}
	return nil
}

func listOf(some []history.Sample) api.History {
	l := api.History{TypeMeta: api.Type("History"), IntervalSeconds: int(history.Interval.Seconds()),
		Fields: history.Fields, Times: make([]int64, len(some)), Samples: make([][]float32, len(some))}
	for i := range some {
		l.Times[i], l.Samples[i] = some[i].Time, some[i].Values[:]
	}
	return l
}

// Pod answers GET /berth/v1/pods/{namespace}/{name}/lifeline.
func (p Past) Pod(w http.ResponseWriter, r *http.Request) error {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	line, ok := p.Lifelines.Find(key)
	if !ok {
		return answer.Next(answer.Failure(http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("nothing is known of the past of pod %s", key)), `"berth get pods -A" lists the pods`)
	}
	answer.WriteJSON(w, http.StatusOK, line)
	return nil
}

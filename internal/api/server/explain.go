package server

import (
	"cmp"
	"context"
	"net/http"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
)

// Explainer reports what admission would decide about pods, without admitting them.
type Explainer interface {
	// Explain returns the result for each pod of the manifests (JSON or YAML), in their order. Each result
	// assumes that only this pod is applied now. The error is for manifests that cannot be read at all. It
	// uses only the options Origin and Namespace.
	Explain(ctx context.Context, data []byte, opts ApplyOptions) ([]api.Explanation, error)
}

func (s podRoutes) explainPods(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	opts := ApplyOptions{Origin: cmp.Or(q.Get(api.ParamOrigin), "request"), Namespace: q.Get(api.ParamNamespace)}
	data, err := readManifests(w, r, opts.Origin)
	if err != nil {
		return err
	}
	items, err := s.Explainer.Explain(r.Context(), data, opts)
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, api.ExplanationList{TypeMeta: api.Type("ExplanationList"), Items: items})
	return nil
}

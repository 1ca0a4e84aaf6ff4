package servertest

import (
	"context"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/server"
)

// SetExplanations sets the answer to an explain of any manifests that are not empty.
func (a *Agent) SetExplanations(all ...api.Explanation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.explained = all
}

type explainer struct{ *Agent }

func (a explainer) Explain(_ context.Context, data []byte, o server.ApplyOptions) ([]api.Explanation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applied = append(a.applied, o)
	if len(data) == 0 {
		return nil, answer.BadRequest(o.Origin+": nothing is in it", "correct the manifest")
	}
	return a.explained, nil
}

package https

import (
	"fmt"
	"net/http"
)

// statsRoutes shows the usage of the node and its pods.
type statsRoutes struct{ stats Stats }

func (s statsRoutes) summary(w http.ResponseWriter, r *http.Request) error {
	summary, err := s.stats.Summary(r.Context(), r.URL.Query().Get("only_cpu_and_memory") == "true")
	if err != nil {
		return fmt.Errorf("collect stats: %w", err)
	}
	return writeJSON(w, summary)
}

package limit_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/berth-run/berth/internal/base/limit"
	"github.com/berth-run/berth/internal/base/limit/limittest"
)

func TestSlowClientsEnd(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"the handler does not read the body": func(http.ResponseWriter, *http.Request) {},
		"the handler reads the body": func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			limittest.SlowClientsEnd(t, &http.Server{Handler: limit.Bodies(handler), ReadHeaderTimeout: limit.Header,
				IdleTimeout: limit.Idle}, "/")
		})
	}
}

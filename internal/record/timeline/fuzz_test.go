package timeline

import (
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// FuzzReadTrail reads the file of a finished timeline. One that is read has a pod and spans, and can be drawn.
func FuzzReadTrail(f *testing.F) {
	f.Add([]byte(`{"version":1,"timeline":{"uid":"u1","namespace":"n","name":"web","begin":"2026-03-01T12:00:00Z",` +
		`"spans":[{"name":"pod","begin":"2026-03-01T12:00:00Z","end":"2026-03-01T12:00:01Z"}]}}`))
	f.Add([]byte(`{"version":1,"timeline":{"uid":"u1","spans":[{"parent":7},{}]}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "0123456789abcdef0123456789abcdef.json")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		line, err := readTrail(path, trace.TraceID{1})
		if err != nil {
			return
		}
		if line.uid == "" || !line.finished || len(line.settled.Spans) == 0 {
			t.Errorf("read %+v", line)
		}
	})
}

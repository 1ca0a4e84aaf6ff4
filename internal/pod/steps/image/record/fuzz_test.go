package record

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

func FuzzIntent(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "pulling/example.com%2Fa:1.json", Version: 1,
		Seeds: []string{`{"key":"example.com/a:1","value":{"image":"example.com/a:1"}}`},
		Read:  read,
	})
}

// FuzzPulled reads the record of a pulled image. A damaged record stays in memory without credentials, so that no pod
// may use the image before it is verified.
func FuzzPulled(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "pulled/sha256:1.json", Version: 1,
		Seeds: []string{
			`{"key":"sha256:1","value":{"repositories":{"example.com/a":{"node":true,"secrets":[{"uid":"u",` +
				`"namespace":"n","name":"s","credentialHash":"h"}]}}}}`,
			`{"key":"sha256:1","value":{"repositories":null}}`,
		},
		Read: read,
	})
}

// read returns the images that count as pulled, with their credentials.
func read(t *testing.T, dir string) (state, report string) {
	var log bytes.Buffer
	r := New(Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := r.Load(); err != nil {
		t.Fatal(err)
	}
	free := map[string]Pulled{}
	for id, p := range r.pulled {
		if len(p.Repositories) > 0 {
			free[id] = p
		}
	}
	return checkpointtest.Show([]any{r.unfinished, free}), log.String()
}

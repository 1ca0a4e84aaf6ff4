package offline

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// offlineAt reads the saved pods below dir with a fixed key.
func offlineAt(t *testing.T, dir string) (kept []Kept, o *Offline, err error) {
	t.Helper()
	key := filepath.Join(dir, "offline", "key")
	text := []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	if err := errors.Join(os.MkdirAll(filepath.Dir(key), 0o700), os.WriteFile(key, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	o = New(Options{Root: dir, Now: func() time.Time { return time.Unix(2e9, 0) },
		Log: slog.New(slog.DiscardHandler)})
	kept, err = o.Load()
	return kept, o, err
}

// FuzzPod reads a saved pod whose file has any content. Without the key, no content gives a pod.
func FuzzPod(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "offline/pods/u1.json", Version: 1,
		Seeds: []string{
			`{"key":"u1","value":{"namespace":"default","name":"web",` +
				`"sealed":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="}}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			kept, _, err := offlineAt(t, dir)
			if len(kept) > 0 {
				t.Errorf("%d pods start that nobody has encrypted with the key", len(kept))
			}
			return "", checkpointtest.Text(err)
		},
	})
}

// FuzzContent reads a saved pod with any content that was encrypted with the key.
func FuzzContent(f *testing.F) {
	f.Add([]byte(`{"pod":{"metadata":{"uid":"u1","name":"web"}},` +
		`"objects":[{"kind":"ConfigMap","object":{"data":{"a":"b"}}}],"tokens":{"t":{}}}`))
	f.Add([]byte(`{"pod":null}`))
	f.Add([]byte(`{"pod":{},"objects":[{"kind":"Secret","object":null}]}`))
	f.Fuzz(func(t *testing.T, plain []byte) {
		dir := t.TempDir()
		_, o, err := offlineAt(t, dir)
		if err != nil {
			t.Fatal(err)
		}
		p := apiPod("u1")
		if err := o.disk.SaveUnsynced("u1", seal(o.key, p.Pod, plain)); err != nil {
			t.Fatal(err)
		}
		kept, _, err := offlineAt(t, dir)
		if (err == nil) != (len(kept) == 1) {
			t.Errorf("%d pods, error %v", len(kept), err)
		}
		for _, k := range kept {
			if k.Pod == nil || k.Pod.UID != types.UID("u1") {
				t.Errorf("the file of pod u1 holds %+v", k.Pod)
			}
		}
		if err != nil && !strings.Contains(err.Error(), "u1") {
			t.Errorf("the error names no pod: %v", err)
		}
	})
}

func FuzzConfirmation(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "offline/confirmed", Version: 1,
		Seeds: []string{`{"at":"2026-03-01T12:00:00Z"}`},
		Read: func(t *testing.T, dir string) (state, report string) {
			_, _, err := offlineAt(t, dir)
			return "", checkpointtest.Text(err)
		},
	})
}

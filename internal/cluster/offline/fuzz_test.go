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

// fuzzSeconds is the time of offlineAt, in seconds since 1970.
const fuzzSeconds = 2e9

// offlineAt reads the saved pods below dir with a fixed key.
func offlineAt(t *testing.T, dir string) (kept []Kept, o *Offline, err error) {
	t.Helper()
	key := filepath.Join(dir, "offline", "key")
	text := []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	if err := errors.Join(os.MkdirAll(filepath.Dir(key), 0o700), os.WriteFile(key, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	o = New(Options{Root: dir, Now: func() time.Time { return time.Unix(fuzzSeconds, 0) },
		Log: slog.New(slog.DiscardHandler)})
	kept, err = o.Load()
	return kept, o, err
}

// FuzzPod reads a saved pod whose file has any content. Without the key, no content gives a pod.
func FuzzPod(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "offline/pods/u1.json", Version: 2,
		Seeds: []string{
			`{"key":"u1","value":{"namespace":"default","name":"web","counter":1,` +
				`"sealed":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="}}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			kept, _, err := offlineAt(t, dir)
			if len(kept) > 0 {
				t.Errorf("%d pods start that were not encrypted with the key", len(kept))
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
		if err := saveIndex(o.indexFile(), o.key, index{}); err != nil {
			t.Fatal(err)
		}
		if err := o.disk.SaveUnsynced("u1", seal(o.key, p.Pod, 1, plain)); err != nil {
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

// FuzzIndex reads an index with any content. Without the key, no content makes an old pod current.
func FuzzIndex(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "offline/index", Version: 1,
		Seeds: []string{`{"sealed":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="}`},
		Read: func(t *testing.T, dir string) (state, report string) {
			_, o, err := offlineAt(t, dir)
			if o.current.Counter != uint64(fuzzSeconds*1e9) || !o.current.Confirmed.IsZero() {
				t.Errorf("an index that was not encrypted with the key is used: %+v", o.current.index)
			}
			return "", checkpointtest.Text(err)
		},
	})
}

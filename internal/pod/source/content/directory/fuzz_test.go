package directory

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
	"github.com/berth-run/berth/internal/pod/source/content"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// received is a Sink that keeps what each manifest wants.
type received struct {
	discard
	wanted map[string]content.Wanted
}

func (r received) Put(origin string, w content.Wanted, _ []content.Problem, _ time.Time) {
	r.wanted[origin] = w
}

// FuzzCopies reads the copy of a manifest while the manifests are missing. Every pod that runs on from the copy is one
// that a manifest of the directory can have.
func FuzzCopies(f *testing.F) {
	const path = "/berth-fuzz/manifests" // does not exist
	seed := func(key, text, dir string) string {
		return `{"key":"` + key + `","value":{"text":"` + base64.StdEncoding.EncodeToString([]byte(text)) + `","dir":` +
			dir + `}}`
	}
	web := path + "/web.yaml"
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "%2Fberth-fuzz%2Fmanifests%2Fweb.yaml.json", Version: 1,
		Seeds: []string{
			seed(web, manifestOf("web", "app:1"), `{"device":1,"inode":2,"handle":"a","mount":true}`),
			seed(web, manifestOf("web", "app:1")+"---\n"+manifestOf("web", ""), `null`),
			seed("/elsewhere/web.yaml", manifestOf("web", "app:1"), `{}`),
			`{"key":"` + web + `","value":null}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			var log bytes.Buffer
			sink := received{wanted: map[string]content.Wanted{}}
			d := New(Options{Path: path, NodeName: "node", Period: time.Hour, Keep: true, Copies: dir,
				Log: slog.New(slog.NewTextHandler(&log, nil))}, sink)
			d.recall()
			d.refresh(time.Unix(1, 0), true, func() {})
			pods := map[string]any{}
			for origin, w := range sink.wanted {
				if filepath.Dir(origin) != path && origin != path {
					t.Errorf("pods of %s run on, want those of %s", origin, path)
				}
				for _, p := range w.Pods {
					if p.UID == "" || manifest.Invalid(manifest.Validate(p.Pod)) != nil {
						t.Errorf("a pod that no manifest can have: %+v", p)
					}
				}
				pods[origin] = []any{w.Pods, w.Objects, w.Dir}
			}
			return checkpointtest.Show(pods), log.String()
		},
	})
}

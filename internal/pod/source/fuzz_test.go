package source

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// readApplied loads the applied pods and objects below dir. Each of them is one that "berth apply" would accept.
func readApplied(t *testing.T, dir string) (state, report string) {
	s := New(Options{NodeName: "node1", Applied: dir, Report: &reports{}, Node: admitted(true),
		Log: slog.New(slog.DiscardHandler)})
	if err := s.Local.load(time.Unix(1, 0)); err != nil {
		return "", err.Error()
	}
	for _, p := range s.Desired.Snapshot().All() {
		if p.UID == "" || manifest.Invalid(manifest.Validate(p.Pod)) != nil {
			t.Errorf("an applied pod that no manifest can have: %+v", p)
		}
	}
	var problems []string
	for _, p := range s.Problems.Snapshot().All() {
		problems = append(problems, p.Err.Error())
	}
	return checkpointtest.Show([]any{s.Desired.Snapshot().All(), s.Objects.Snapshot().All()}),
		strings.Join(problems, "\n")
}

func FuzzAppliedPod(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "default%2Fweb.json", Version: 1,
		Seeds: []string{
			`{"key":"default/web","value":{"seen":"2026-03-01T12:00:00Z","pod":{"metadata":{"name":"web",` +
				`"namespace":"default","uid":"u1"},"spec":{"containers":[{"name":"app","image":"i"}]}}}}`,
			`{"key":"default/web","value":{"pod":null}}`,
		},
		Read: readApplied,
	})
}

func FuzzAppliedObject(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "objects/configmap%20default%2Fc.json", Version: 1,
		Seeds: []string{
			`{"key":"configmap default/c","value":{"kind":"ConfigMap","object":{"metadata":{"name":"c",` +
				`"namespace":"default","uid":"u"},"data":{"k":"v"}}}}`,
			`{"key":"configmap default/c","value":{"kind":"PersistentVolume","object":{"spec":{"local":null}}}}`,
		},
		Read: readApplied,
	})
}

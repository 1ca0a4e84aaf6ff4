package tasks

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Only the exits that the CRI plugin has not recorded become stopped tasks. The others are removed.
func TestExitsOfDeletedContainers(t *testing.T) {
	dir := t.TempDir()
	m := &Manager{
		config: Config{Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Log: slog.Default()},
		own:    map[string]owned{"new": {}}, ended: map[string]*ended{},
	}
	at := time.Now().UTC()
	exit, err := proto.Marshal(&taskapi.DeleteResponse{Pid: 7, ExitStatus: 5, ExitedAt: timestamppb.New(at)})
	if err != nil {
		t.Fatal(err)
	}
	record := func(id, status string) {
		write(t, filepath.Join(m.config.records(), id, "status"), []byte(status))
	}
	for _, id := range []string{"running", "recorded", "unknown", "new", ".running"} {
		write(t, m.exitFile("k8s.io", id), exit)
	}
	write(t, m.exitFile("k8s.io", "damaged"), []byte("?"))
	write(t, m.exitFile("k8s.io", "empty"), nil) // a power cut
	record("running", `{"FinishedAt":0}`)
	record("recorded", `{"FinishedAt":1}`)
	record("new", `{}`)
	record("damaged", `{}`)
	record("empty", `{}`)
	if err := m.loadExits(); err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(maps.Keys(m.ended)); !slices.Equal(got, []string{"running"}) {
		t.Errorf("stopped tasks %q, want the one whose end was not recorded", got)
	}
	var left []string
	files, _ := filepath.Glob(m.exitFile("k8s.io", "*"))
	for _, file := range files {
		left = append(left, filepath.Base(file))
	}
	if want := []string{"damaged", "empty", "new", "running"}; !slices.Equal(left, want) {
		t.Errorf("files of exits %q, want %q", left, want)
	}
	task, err := m.Get(t.Context(), "running")
	if err != nil {
		t.Fatal(err)
	}
	state, err := task.State(t.Context())
	want := runtime.State{Status: runtime.StoppedStatus, Pid: 7, ExitStatus: 5, ExitedAt: at}
	if err != nil || state != want {
		t.Errorf("state %+v, %v, want %+v", state, err, want)
	}
	if err := task.Kill(t.Context(), 9, false); err == nil {
		t.Error("killed a task that has ended")
	}
	if got, err := m.Delete(t.Context(), "running"); err != nil || got.Status != 5 || len(m.ended) > 0 {
		t.Errorf("deletion: %+v, %v, tasks left %v", got, err, m.ended)
	}
}

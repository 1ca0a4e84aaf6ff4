package record

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
	kubelet "github.com/berth-run/berth/internal/pod/steps/device/checkpoint"
	"github.com/berth-run/berth/internal/pod/steps/device/record/recordtest"
)

func FuzzAnswers(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "state/pods/u1.json", Version: 1,
		Seeds: []string{
			`{"key":"u1","value":{"app":{"example.com/gpu":{"nodes":{"g0":1},"boot":"boot","preStart":true,` +
				`"envs":{"A":"b"},"mounts":[{"container":"/a","host":"/b"}],"devices":[{"container":"/dev/a",` +
				`"host":"/dev/b","permissions":"rw"}],"cdi":["a/b=c"]}}}}`,
			`{"key":"u1","value":{"app":{"example.com/gpu":{"nodes":null,"boot":"boot"}}}}`,
		},
		Read: read,
	})
}

// FuzzResources reads the devices of plugins beside the checkpoint of a kubelet that ran later.
func FuzzResources(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "state/resources.json", Version: 1,
		Seeds: []string{
			`{"resources":{"example.com/gpu":[{"ID":"g0","Healthy":true,"Nodes":1}]}}`,
			`{"resources":null}`,
		},
		Read: read,
	})
}

func read(t *testing.T, dir string) (state, report string) {
	plugins := t.TempDir() // Load reads the kubelet's file, and writes it
	theirs := recordtest.File(recordtest.Entry(t, "u2", "app", "example.com/nic", `{"0":["n0"]}`))
	if err := os.WriteFile(filepath.Join(plugins, kubelet.Name), []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(Options{Plugins: plugins, State: filepath.Join(dir, "state"), Boot: "boot",
		Log: slog.New(slog.DiscardHandler)})
	resources, err := r.Load()
	for uid := range r.Held() {
		if len(r.Answers(uid)) == 0 {
			t.Errorf("pod %s holds devices without an answer", uid)
		}
	}
	return checkpointtest.Show([]any{resources, r.answers}), checkpointtest.Text(err)
}

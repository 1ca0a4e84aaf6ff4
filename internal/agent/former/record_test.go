package former

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
)

const socket = "unix:///run/containerd/containerd.sock"

// A root directory whose agent did not keep the file still tells of the embedded runtime, also if the file is damaged.
func TestLoadFindsTheEmbeddedRuntimeOfEarlierAgents(t *testing.T) {
	root := t.TempDir()
	if all, err := load(root); err != nil || len(all) > 0 {
		t.Errorf("an empty directory: %v (%v)", all, err)
	}
	runtime := filepath.Join(root, "runtime", "io.containerd.grpc.v1.cri", "sandboxes")
	if err := os.MkdirAll(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	if all, err := load(root); err != nil || len(all) > 0 {
		t.Errorf("an embedded runtime without pods: %v (%v)", all, err)
	}
	if err := os.Mkdir(filepath.Join(runtime, "id"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := []string{endpoint.Embedded}
	if all, err := load(root); err != nil || cmp.Diff(want, all) != "" {
		t.Errorf("an embedded runtime with a pod: %v (%v), want %v", all, err, want)
	}
	if err := os.WriteFile(path(root), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := load(root)
	if _, damaged := errors.AsType[*checkpoint.DamagedError](err); !damaged || cmp.Diff(want, all) != "" {
		t.Errorf("a damaged file: %v (%v), want %v and an error about the file", all, err, want)
	}
}

// Leave needs no runtime if the agent has used no other.
func TestLeaveRecordsTheRuntime(t *testing.T) {
	o := Options{Config: &config.Config{RootDir: t.TempDir()}} // a call to Runtimes or Log would panic
	for range 2 {
		if err := Leave(t.Context(), o, socket); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := load(o.Config.RootDir); err != nil || cmp.Diff([]string{socket}, all) != "" {
		t.Errorf("recorded %v (%v), want %v", all, err, socket)
	}
}

func TestGraceOf(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		most        time.Duration
		want        int64
	}{
		"without":      {nil, time.Minute, 30},
		"shorter":      {map[string]string{pod.AnnotationTerminationGrace: "5"}, time.Minute, 5},
		"longer":       {map[string]string{pod.AnnotationTerminationGrace: "3600"}, time.Minute, 60},
		"not a number": {map[string]string{pod.AnnotationTerminationGrace: "x"}, time.Minute, 30},
		"negative":     {map[string]string{pod.AnnotationTerminationGrace: "-1"}, time.Minute, 0},
		"at once":      {map[string]string{pod.AnnotationTerminationGrace: "5"}, 0, 0},
	} {
		if got := graceOf(&runtimeapi.Container{Annotations: c.annotations}, c.most); got != c.want {
			t.Errorf("%s: %d s, want %d", name, got, c.want)
		}
	}
}

package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
)

// The features that a runtime offers a pod depend on the handler that runs the pod.
func TestHandlers(t *testing.T) {
	e := &Engine{}
	e.SetStatus(&runtimeapi.StatusResponse{RuntimeHandlers: []*runtimeapi.RuntimeHandler{
		{Name: "sandboxed", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}},
		{Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}},
	}})
	table := store.New[object.Key, runtime.Object]()
	e.classes = object.New(table)
	table.Put(object.Key{Kind: object.RuntimeClass, Name: "secure"}, &nodev1.RuntimeClass{Handler: "sandboxed"})
	type answer struct {
		Handler   string
		Userns    string
		Recursive bool
	}
	ask := func(class *string) answer {
		p := &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: class}}
		a := answer{Handler: e.handler(p)}
		a.Recursive = e.RecursiveReadOnly(p)
		if !e.listed().features(a.Handler).GetUserNamespaces() {
			a.Userns = e.CheckUserns(p).Error()
		}
		return a
	}
	for name, test := range map[string]struct {
		class *string
		want  answer
	}{
		"no class": {nil, answer{}},
		"a class of that name": {new("secure"),
			answer{"sandboxed", "the container runtime does not support user namespaces with its handler sandboxed",
				true}},
		"a class that is not there": {new("other"), answer{}},
	} {
		if diff := cmp.Diff(test.want, ask(test.class)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"", "sandboxed"}, e.Handlers()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got := handlers(nil).names(); got != nil {
		t.Errorf("a runtime that does not say has %q", got)
	}
}

// The agent must know the images of sandboxes, so that image garbage collection keeps them.
func TestSandboxImages(t *testing.T) {
	for config, want := range map[string][]string{
		`{"containerd":{"snapshotter":"overlayfs"},"sandboxImage":"registry.example/pause:3.6"}`: {
			"registry.example/pause:3.6"},
		`{"containerd":{}}`: nil,
		"":                  nil,
		"[crio]":            nil,
	} {
		if diff := cmp.Diff(want, sandboxImages(config)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
}

// A runtime that was reconfigured while the agent runs shows its new features and handlers.
func TestSetStatus(t *testing.T) {
	status := func(strict bool, names ...string) *runtimeapi.StatusResponse {
		s := &runtimeapi.StatusResponse{Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: strict}}
		for _, name := range names {
			s.RuntimeHandlers = append(s.RuntimeHandlers, &runtimeapi.RuntimeHandler{Name: name})
		}
		return s
	}
	e := &Engine{}
	if e.Features().GetSupplementalGroupsPolicy() || e.Handlers() != nil {
		t.Error("a runtime that was not asked has features")
	}
	for i, step := range []struct {
		status  *runtimeapi.StatusResponse
		changed bool
	}{
		{status(false, "", "runc"), true}, {status(false, "runc", ""), false}, {status(true, "", "runc"), true},
		{status(true, "", "runc", "kata"), true}, {status(true, "", "runc", "kata"), false},
	} {
		if changed := e.SetStatus(step.status); changed != step.changed {
			t.Errorf("step %d: changed %v", i, changed)
		}
	}
	if !e.Features().GetSupplementalGroupsPolicy() || len(e.Handlers()) != 3 {
		t.Errorf("features %v, handlers %v", e.Features(), e.Handlers())
	}
}

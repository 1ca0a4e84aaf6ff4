package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/system"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/translate"
)

func TestFactsOfAnEngine(t *testing.T) {
	info := &system.Info{CgroupDriver: "systemd", SecurityOptions: []string{"name=seccomp,profile=default",
		"name=apparmor"}, DefaultRuntime: "runc",
		Runtimes: map[string]system.RuntimeWithStatus{"runc": {}, "kata": {}}}
	got := facts(info, func(feature string) bool { return feature != docker.ImageMounts }, -500)
	want := translate.Facts{Systemd: true, AppArmor: true, OOMFloor: -500,
		Handlers: map[string]bool{"runc": true, "kata": true}, CDI: true, RecursiveReadOnly: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	recursive := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}
	listed := []*runtimeapi.RuntimeHandler{{Features: recursive},
		{Name: "kata", Features: &runtimeapi.RuntimeHandlerFeatures{}}, {Name: "runc", Features: recursive}}
	if diff := cmp.Diff(listed, handlers(info, true), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

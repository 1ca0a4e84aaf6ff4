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

func TestSnapshotterIsThatOfContainerdsStore(t *testing.T) {
	known := &system.ContainerdInfo{Address: "/run/containerd/containerd.sock"}
	containerds := [][2]string{{"driver-type", "io.containerd.snapshotter.v1"}}
	for _, c := range []struct {
		info system.Info
		want string
	}{
		{system.Info{Driver: "overlayfs", DriverStatus: containerds, Containerd: known}, "overlayfs"},
		{system.Info{Driver: "overlay2", Containerd: known}, ""},
		{system.Info{Driver: "overlayfs", DriverStatus: containerds}, ""}, // before API 1.46
	} {
		if got := snapshotter(&c.info); got != c.want {
			t.Errorf("the snapshotter of %+v is %q, want %q", c.info, got, c.want)
		}
	}
}

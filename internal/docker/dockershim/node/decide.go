package node

import (
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/translate"
)

const (
	// systemd is Docker's name of the cgroup driver.
	systemd = "systemd"
	// snapshotterType is the type of containerd's plugins that store layers.
	snapshotterType = "io.containerd.snapshotter.v1"
)

// snapshotter returns the name of the snapshotter of an Engine with containerd's image store. It is empty for an Engine
// with a store of its own, and for one that does not name its containerd (before API 1.46).
func snapshotter(info *system.Info) string {
	if info.Containerd != nil && slices.Contains(info.DriverStatus, [2]string{"driver-type", snapshotterType}) {
		return info.Driver
	}
	return ""
}

// facts converts the info of an Engine. supports reports whether the Engine has a feature.
func facts(info *system.Info, supports func(feature string) bool, oomFloor int) translate.Facts {
	f := translate.Facts{
		Systemd: info.CgroupDriver == systemd, OOMFloor: oomFloor, Handlers: map[string]bool{},
		AppArmor: slices.ContainsFunc(info.SecurityOptions, func(option string) bool {
			return strings.HasPrefix(option, "name=apparmor")
		}),
		CDI: supports(docker.CDI), RecursiveReadOnly: supports(docker.RecursiveReadOnly),
		ImageMounts: supports(docker.ImageMounts),
	}
	for name := range info.Runtimes {
		f.Handlers[name] = true
	}
	return f
}

// handlers returns the runtime handlers of an Engine, sorted by name. The default one has no name.
func handlers(info *system.Info, recursive bool) []*runtimeapi.RuntimeHandler {
	all := []*runtimeapi.RuntimeHandler{{Features: features(info.DefaultRuntime, recursive)}}
	for name := range info.Runtimes {
		all = append(all, &runtimeapi.RuntimeHandler{Name: name, Features: features(name, recursive)})
	}
	slices.SortFunc(all, func(a, b *runtimeapi.RuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// features returns the features of a handler. The Engine finds out whether runc can mount read-only recursively, and
// refuses such a mount otherwise. No Engine gives pods user namespaces of their own.
func features(handler string, recursive bool) *runtimeapi.RuntimeHandlerFeatures {
	isRunc := handler == "runc" || handler == "io.containerd.runc.v2"
	return &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: recursive && isRunc}
}

package api

import (
	"runtime"
	"runtime/debug"
	"time"
)

// Kubernetes is the release whose kubelet Berth behaves like.
const Kubernetes = "1.36"

// Runc is the release of runc in the embedded runtime (tools/go.mod).
const Runc = "1.5.2"

const containerdModule = "github.com/containerd/containerd/v2"

// BuildVersion returns the version of the running binary, from the build information of the Go toolchain.
func BuildVersion() Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Version{Version: "unknown", Go: runtime.Version(), Runc: Runc, Kubernetes: Kubernetes}
	}
	return version(info)
}

func version(info *debug.BuildInfo) Version {
	v := Version{Version: info.Main.Version, Go: info.GoVersion, Runc: Runc, Kubernetes: Kubernetes}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "vcs.time":
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				v.BuiltAt = &t
			}
		}
	}
	for _, dep := range info.Deps {
		if dep.Path == containerdModule {
			v.Containerd = dep.Version
		}
	}
	return v
}

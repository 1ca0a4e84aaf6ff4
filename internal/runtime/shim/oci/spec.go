package oci

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/base/logfile"
)

// Spec is the part of a container's specification that the shim needs. The specification has none if it is nil.
type Spec struct {
	Namespaces []specs.LinuxNamespace
	MountLabel string
	// CgroupsPath names the container's cgroup for the OCI runtime: a path, or SLICE:PREFIX:NAME for systemd.
	CgroupsPath string
	// IntelRdt is set if the OCI runtime has made a group of cache and memory bandwidth for the container.
	IntelRdt *specs.LinuxIntelRdt
	// Poststop are the hooks that the OCI runtime runs when it deletes the container.
	Poststop []specs.Hook `json:"-"`
	// Log is the path of the container's log, empty if there is none.
	Log string `json:"-"`
}

// ReadSpec reads the specification in a bundle. It returns nil if there is none.
func ReadSpec(bundle string) *Spec {
	content, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil
	}
	var spec struct {
		Linux       Spec
		Annotations map[string]string
		Hooks       struct{ Poststop []specs.Hook }
	}
	if json.Unmarshal(content, &spec) != nil {
		return nil
	}
	spec.Linux.Log, spec.Linux.Poststop = spec.Annotations[logfile.Annotation], spec.Hooks.Poststop
	return &spec.Linux
}

// OwnPIDs reports whether the container has a PID namespace of its own, whose processes end with the first.
func (s *Spec) OwnPIDs() bool {
	if s == nil {
		return true
	}
	for _, namespace := range s.Namespaces {
		if namespace.Type == specs.PIDNamespace {
			return namespace.Path == ""
		}
	}
	return false
}

// Cgroup is the name of the container's cgroup for the OCI runtime, empty if there is none.
func (s *Spec) Cgroup() string {
	if s == nil {
		return ""
	}
	return s.CgroupsPath
}

// Plain reports whether nothing is left of the container, when it has ended, but its cgroup and its state.
func (s *Spec) Plain() bool { return s != nil && s.IntelRdt == nil && len(s.Poststop) == 0 }

// Label is the SELinux label of the container's files.
func (s *Spec) Label() string {
	if s == nil {
		return ""
	}
	return s.MountLabel
}

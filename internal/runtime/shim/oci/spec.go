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
	}
	if json.Unmarshal(content, &spec) != nil {
		return nil
	}
	spec.Linux.Log = spec.Annotations[logfile.Annotation]
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

// Label is the SELinux label of the container's files.
func (s *Spec) Label() string {
	if s == nil {
		return ""
	}
	return s.MountLabel
}

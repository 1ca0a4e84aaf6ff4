package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/cpulist"
)

// Answer is the answer of a pre-create hook. Fields that it omits change nothing.
type Answer struct {
	// CPUs and NUMA nodes, in the kernel's list format, such as "0-3,8".
	CpusetCpus string   `json:"cpusetCpus,omitempty"`
	CpusetMems string   `json:"cpusetMems,omitempty"`
	Devices    []Device `json:"devices,omitempty"`
	// CDIDevices are fully qualified names, such as "vendor.com/gpu=0".
	CDIDevices []string `json:"cdiDevices,omitempty"`
	Mounts     []Mount  `json:"mounts,omitempty"`
	// Env is set in this order and replaces variables of the same name.
	Env []Variable `json:"env,omitempty"`
	// Annotations are set on the container for the runtime. Names that belong to Kubernetes or Berth are refused.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Device is a device node of the host.
type Device struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	// Permissions has letters of "rwm" (read, write, mknod). Default "rwm".
	Permissions string `json:"permissions,omitempty"`
}

// Mount is a file or directory of the host.
type Mount struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
}

// Variable is an environment variable.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// parse reads an answer strictly. No output at all is an answer that changes nothing.
func parse(raw []byte) (Answer, error) {
	var a Answer
	if len(bytes.TrimSpace(raw)) == 0 {
		return a, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return a, errors.New("more than one JSON value")
	}
	return a, a.check()
}

func (a Answer) check() error {
	if !isList(a.CpusetCpus) {
		return fmt.Errorf("cpusetCpus %q is not a list like 0-3,8", a.CpusetCpus)
	}
	if !isList(a.CpusetMems) {
		return fmt.Errorf("cpusetMems %q is not a list like 0-1", a.CpusetMems)
	}
	for i, d := range a.Devices {
		if !filepath.IsAbs(d.HostPath) || !filepath.IsAbs(d.ContainerPath) {
			return fmt.Errorf("devices[%d]: hostPath and containerPath must be absolute paths", i)
		}
		if strings.Trim(d.Permissions, "rwm") != "" {
			return fmt.Errorf("devices[%d]: permissions %q must consist of the letters r, w and m", i, d.Permissions)
		}
	}
	for i, m := range a.Mounts {
		if !filepath.IsAbs(m.HostPath) || !filepath.IsAbs(m.ContainerPath) {
			return fmt.Errorf("mounts[%d]: hostPath and containerPath must be absolute paths", i)
		}
	}
	for i, e := range a.Env {
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") || strings.Contains(e.Value, "\x00") {
			return fmt.Errorf("env[%d]: %q cannot be a variable", i, e.Name)
		}
	}
	if slices.Contains(a.CDIDevices, "") {
		return errors.New("cdiDevices has an empty name")
	}
	for name := range a.Annotations {
		if strings.HasPrefix(name, "io.kubernetes.") || strings.HasPrefix(name, "berth.run/") {
			return fmt.Errorf("annotation %q is reserved for Kubernetes and Berth", name)
		}
	}
	return nil
}

// isList reports whether s is a list of CPUs or NUMA nodes that each runtime can read: without spaces. It may be empty.
func isList(s string) bool {
	_, err := cpulist.Parse(s)
	return err == nil && !strings.ContainsFunc(s, unicode.IsSpace)
}

// apply applies an answer to a container's configuration.
func (a Answer) apply(config *runtimeapi.ContainerConfig) {
	if a.CpusetCpus != "" || a.CpusetMems != "" {
		if config.Linux == nil {
			config.Linux = &runtimeapi.LinuxContainerConfig{}
		}
		if config.Linux.Resources == nil {
			config.Linux.Resources = &runtimeapi.LinuxContainerResources{}
		}
	}
	if a.CpusetCpus != "" {
		config.Linux.Resources.CpusetCpus = a.CpusetCpus
	}
	if a.CpusetMems != "" {
		config.Linux.Resources.CpusetMems = a.CpusetMems
	}
	for _, d := range a.Devices {
		permissions := d.Permissions
		if permissions == "" {
			permissions = "rwm"
		}
		config.Devices = append(config.Devices,
			&runtimeapi.Device{HostPath: d.HostPath, ContainerPath: d.ContainerPath, Permissions: permissions})
	}
	for _, name := range a.CDIDevices {
		config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	}
	for _, m := range a.Mounts {
		config.Mounts = append(config.Mounts,
			&runtimeapi.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.ReadOnly})
	}
	for _, e := range a.Env {
		config.Envs = slices.DeleteFunc(config.Envs, func(have *runtimeapi.KeyValue) bool { return have.Key == e.Name })
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	for name, value := range a.Annotations {
		if config.Annotations == nil {
			config.Annotations = map[string]string{}
		}
		config.Annotations[name] = value
	}
}

package render

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

const hostsPath = "/etc/hosts"

// SubPaths returns, for each volumeMount of a container in order, which part of the volume it shows. "" is the whole
// volume. The paths are relative and contain no "..".
func SubPaths(in Input) ([]string, error) {
	var env *variables
	paths := make([]string, len(in.Container.VolumeMounts))
	for i, m := range in.Container.VolumeMounts {
		path := m.SubPath
		if m.SubPathExpr != "" {
			if env == nil {
				var err error
				if env, err = environment(in); err != nil {
					return nil, err
				}
			}
			var missing []string
			path = pod.Expand(m.SubPathExpr, func(name string) (string, bool) {
				value, _ := env.lookup(name)
				if value == "" {
					missing = append(missing, name)
				}
				return value, true
			})
			if len(missing) > 0 {
				slices.Sort(missing)
				return nil, fmt.Errorf("missing value for %s", strings.Join(slices.Compact(missing), ", "))
			}
		}
		if filepath.IsAbs(path) {
			return nil, fmt.Errorf("subPath %q of volume mount %q must not be an absolute path", path, m.Name)
		}
		if slices.Contains(strings.Split(path, "/"), "..") {
			return nil, fmt.Errorf("subPath %q of volume mount %q must not contain '..'", path, m.Name)
		}
		paths[i] = path
	}
	return paths, nil
}

// WantsHosts reports whether the container gets the pod's /etc/hosts. It does not if it mounts one itself, or if the
// pod has no address to put there.
func WantsHosts(p *corev1.Pod, c pod.Container, podIPs []string) bool {
	if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == hostsPath }) {
		return false
	}
	return pod.HostNetwork(p) || len(podIPs) > 0
}

func mounts(in Input) ([]*runtimeapi.Mount, error) {
	var list []*runtimeapi.Mount
	for i, m := range in.Container.VolumeMounts {
		propagation, err := propagationOf(in, m)
		if err != nil {
			return nil, err
		}
		recursive, err := recursiveReadOnly(m, in.Node.RecursiveReadOnly)
		if err != nil {
			return nil, err
		}
		of := in.Mounted[m.Name]
		mount := &runtimeapi.Mount{
			HostPath:          in.Volumes[i],
			ContainerPath:     absolute(m.MountPath),
			Readonly:          m.ReadOnly || of.ReadOnly,
			RecursiveReadOnly: recursive,
			Propagation:       propagation,
			SelinuxRelabel:    in.Node.SELinux && !of.HostLabels,
		}
		if of.Image != "" {
			mount.HostPath, mount.ImageSubPath, mount.Image = "", in.Volumes[i], &runtimeapi.ImageSpec{Image: of.Image}
		}
		list = append(list, mount)
	}
	if in.HostsFile != "" {
		list = append(list,
			&runtimeapi.Mount{HostPath: in.HostsFile, ContainerPath: hostsPath, SelinuxRelabel: in.Node.SELinux})
	}
	if in.TerminationLog != "" {
		list = append(list, &runtimeapi.Mount{
			HostPath: in.TerminationLog, ContainerPath: absolute(in.Container.TerminationMessagePath),
			SelinuxRelabel: in.Node.SELinux,
		})
	}
	for _, m := range list {
		m.UidMappings, m.GidMappings = in.Userns.GetUids(), in.Userns.GetGids()
	}
	return list, nil
}

// devices returns the volumes that the container uses as block devices.
func devices(in Input) ([]*runtimeapi.Device, error) {
	var list []*runtimeapi.Device
	for _, d := range in.Container.VolumeDevices {
		v, ok := in.Mounted[d.Name]
		if !ok || !v.Block {
			return nil, fmt.Errorf("cannot find block volume %q to map into container %q", d.Name, in.Container.Name)
		}
		permissions := "mrw"
		if v.ReadOnly {
			permissions = "mr"
		}
		list = append(list, &runtimeapi.Device{HostPath: v.Path, ContainerPath: d.DevicePath, Permissions: permissions})
	}
	return list, nil
}

// volumeGroups returns the supplementary groups that the pod's volumes require.
func volumeGroups(in Input) []int64 {
	var groups []int64
	for _, v := range in.Pod.Spec.Volumes {
		for _, g := range in.Mounted[v.Name].Groups {
			if !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "/" + path
}

func propagationOf(in Input, m corev1.VolumeMount) (runtimeapi.MountPropagation, error) {
	if m.MountPropagation == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *m.MountPropagation {
	case corev1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case corev1.MountPropagationBidirectional:
		if _, sc := contexts(in); !isTrue(sc.Privileged) {
			return 0, fmt.Errorf(
				"volume mount %q: mountPropagation Bidirectional is available only to privileged containers", m.Name)
		}
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("volume mount %q has the invalid mountPropagation %q", m.Name, *m.MountPropagation)
}

// recursiveReadOnly applies KEP-3857.
func recursiveReadOnly(m corev1.VolumeMount, supported bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	switch {
	case !m.ReadOnly:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", m.Name)
	case m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone:
		return false,
			fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q",
				m.Name, *m.MountPropagation)
	case *m.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case *m.RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("volume %q has the unknown recursive read-only mode %q", m.Name, *m.RecursiveReadOnly)
	case !supported:
		return false,
			fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
	}
	return true, nil
}

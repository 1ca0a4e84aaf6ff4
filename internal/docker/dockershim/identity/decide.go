package identity

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels that cri-dockerd sets too.
const (
	kindLabel     = "io.kubernetes.docker.type"
	logPathLabel  = "io.kubernetes.container.logpath"
	sandboxLabel  = "io.kubernetes.sandbox.id"
	nameLabel     = "io.kubernetes.container.name"
	annotationKey = "annotation."

	sandboxKind   = "podsandbox"
	containerKind = "container"
	// sandboxName stands in place of a container's name.
	sandboxName = "POD"
	prefix      = "k8s"
	separator   = "_"
)

// Labels that cri-dockerd does not know: the hash of the request that made a container, and its limits that the Engine
// API lacks.
const (
	specLabel   = "io.berth.spec"
	cgroupLabel = "io.berth.cgroup"
)

// parts is how many parts a name has. A name with a random suffix has one more.
const parts = 6

// Filter is the label that all containers of Kubernetes have, with any value.
const Filter = kindLabel

// Identity identifies a container of Docker, as its name and labels say.
type Identity struct {
	// Sandbox means that it is the pause container of a pod.
	Sandbox bool
	// Pod names the pod. Its attempt is the sandbox's, and unknown for a container.
	Pod *runtimeapi.PodSandboxMetadata
	// Container is the container's name and attempt; nil for a sandbox.
	Container *runtimeapi.ContainerMetadata
	// SandboxID is the sandbox of a container.
	SandboxID string
	// LogPath is where the CRI expects the log of a container.
	LogPath string
	// Spec is the hash of the request that made it; empty for containers of cri-dockerd.
	Spec string
	// Cgroup has the limits that the Engine API lacks, as package translate writes them. It is empty if there are none.
	Cgroup string
	// Labels and Annotations are the CRI's.
	Labels, Annotations map[string]string
}

// SandboxName returns the name of a sandbox.
func SandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return strings.Join([]string{prefix, sandboxName, m.GetName(), m.GetNamespace(), m.GetUid(),
		strconv.FormatUint(uint64(m.GetAttempt()), 10)}, separator)
}

// ContainerName returns the name of a container of a pod.
func ContainerName(pod *runtimeapi.PodSandboxMetadata, m *runtimeapi.ContainerMetadata) string {
	return strings.Join([]string{prefix, m.GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(),
		strconv.FormatUint(uint64(m.GetAttempt()), 10)}, separator)
}

// Suffixed returns another name for the same container. It is used if Docker does not free the first name.
func Suffixed(name string, random uint32) string {
	return fmt.Sprintf("%s%s%08x", name, separator, random)
}

// SandboxLabels returns the labels of a sandbox.
func SandboxLabels(labels, annotations map[string]string, spec string) map[string]string {
	all := withAnnotations(labels, annotations)
	all[kindLabel], all[nameLabel], all[specLabel] = sandboxKind, sandboxName, spec
	return all
}

// ContainerLabels returns the labels of a container.
func ContainerLabels(i Identity) map[string]string {
	all := withAnnotations(i.Labels, i.Annotations)
	all[kindLabel], all[sandboxLabel], all[logPathLabel], all[specLabel] = containerKind, i.SandboxID, i.LogPath, i.Spec
	if i.Cgroup != "" {
		all[cgroupLabel] = i.Cgroup
	}
	return all
}

// SpecOf returns the hash of the request that made a container with these labels.
func SpecOf(labels map[string]string) string { return labels[specLabel] }

func withAnnotations(labels, annotations map[string]string) map[string]string {
	all := make(map[string]string, len(labels)+len(annotations)+4)
	maps.Copy(all, labels)
	for key, value := range annotations {
		all[annotationKey+key] = value
	}
	return all
}

// Read reads the name and the labels of a container of Docker. The error says why the container does not belong to
// Kubernetes.
func Read(name string, labels map[string]string) (Identity, error) {
	var i Identity
	switch kind := labels[kindLabel]; kind {
	case sandboxKind:
		i.Sandbox = true
	case containerKind:
	default:
		return i, fmt.Errorf("container %s has no label %s of a pod", name, kindLabel)
	}
	fields := strings.Split(strings.TrimPrefix(name, "/"), separator)
	if len(fields) != parts && len(fields) != parts+1 || fields[0] != prefix {
		return i, fmt.Errorf("container %s has no name of a pod", name)
	}
	attempt, err := strconv.ParseUint(fields[5], 10, 32)
	if err != nil {
		return i, fmt.Errorf("container %s has no name of a pod: %w", name, err)
	}
	i.Pod = &runtimeapi.PodSandboxMetadata{Name: fields[2], Namespace: fields[3], Uid: fields[4]}
	if i.Sandbox {
		i.Pod.Attempt = uint32(attempt)
	} else {
		i.Container = &runtimeapi.ContainerMetadata{Name: fields[1], Attempt: uint32(attempt)}
		i.SandboxID, i.LogPath = labels[sandboxLabel], labels[logPathLabel]
	}
	i.Spec, i.Cgroup = labels[specLabel], labels[cgroupLabel]
	i.Labels, i.Annotations = split(labels, i.Sandbox)
	return i, nil
}

// split separates the labels of the CRI from its annotations, and leaves out the labels of this package.
func split(all map[string]string, sandbox bool) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	for key, value := range all {
		annotation, found := strings.CutPrefix(key, annotationKey)
		switch {
		case found:
			annotations[annotation] = value
		case key == kindLabel, key == logPathLabel, key == sandboxLabel, key == specLabel, key == cgroupLabel,
			sandbox && key == nameLabel && value == sandboxName:
		default:
			labels[key] = value
		}
	}
	return labels, annotations
}

package container

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockershim/translate"
)

// Reasons of the end of a container, as containerd reports them.
const (
	completed  = "Completed"
	failed     = "Error"
	oomKilled  = "OOMKilled"
	startError = "StartError"
)

// reason returns why a container has ended; "" while it has not.
func reason(c *index.Record) string {
	switch {
	case !c.Exited():
		return ""
	case c.Times.Started == 0:
		return startError
	case c.OOMKilled:
		return oomKilled
	case c.ExitCode == 0:
		return completed
	}
	return failed
}

// imageOf returns the name of a container's image. requested is what its creation named. Kubelets name an image by its
// ID, and users look for a tag.
func imageOf(requested, tag string) string {
	if strings.HasPrefix(requested, "sha256:") && tag != "" {
		return tag
	}
	return requested
}

// statusOf converts the record of a container.
func statusOf(c *index.Record, image, digest string, limits *runtimeapi.LinuxContainerResources,
) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: c.Container, State: c.State, CreatedAt: c.Times.Created, StartedAt: c.Times.Started,
		FinishedAt: c.Times.Finished, ExitCode: c.ExitCode, Image: &runtimeapi.ImageSpec{Image: image},
		ImageRef: digest, ImageId: c.ImageID, Reason: reason(c), Message: c.Message, Labels: c.Labels,
		Annotations: c.Annotations, Mounts: c.Mounts, LogPath: c.LogPath,
		Resources: &runtimeapi.ContainerResources{Linux: limits}, User: userOf(c.User, c.Host.GroupAdd),
		StopSignal: translate.Signal(c.StopSignal),
	}
}

// userOf returns the user of a container if Docker has it in numbers. It is nil for a user with a name, which only the
// files in the container resolve.
func userOf(user string, groups []string) *runtimeapi.ContainerUser {
	id, group, _ := strings.Cut(user, ":")
	uid, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return nil
	}
	gid, err := strconv.ParseInt(group, 10, 64)
	if err != nil {
		return nil
	}
	linux := &runtimeapi.LinuxContainerUser{Uid: uid, Gid: gid}
	for _, g := range groups {
		if n, err := strconv.ParseInt(g, 10, 64); err == nil {
			linux.SupplementalGroups = append(linux.SupplementalGroups, n)
		}
	}
	return &runtimeapi.ContainerUser{Linux: linux}
}

// itemOf converts the record of a container for a list.
func itemOf(c *index.Record, digest string) *runtimeapi.Container {
	return &runtimeapi.Container{Id: c.ID, PodSandboxId: c.SandboxID, Metadata: c.Container,
		Image: &runtimeapi.ImageSpec{Image: c.Image}, ImageRef: digest, ImageId: c.ImageID, State: c.State,
		CreatedAt: c.Times.Created, Labels: c.Labels, Annotations: c.Annotations}
}

// matches reports whether a filter lets a container through.
func matches(c *index.Record, f *runtimeapi.ContainerFilter) bool {
	if f.GetId() != "" && f.GetId() != c.ID || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.SandboxID ||
		f.GetState() != nil && f.GetState().GetState() != c.State {
		return false
	}
	for key, value := range f.GetLabelSelector() {
		if own, ok := c.Labels[key]; !ok || own != value {
			return false
		}
	}
	return true
}

// verbose describes a container as the CRI plugin of containerd does, as far as the Engine knows the container. An
// agent needs the limits to repair the files of the cgroup.
func verbose(c *index.Record, limits *runtimeapi.LinuxContainerResources) (string, error) {
	spec := specs.Spec{Linux: &specs.Linux{Resources: &specs.LinuxResources{
		CPU: &specs.LinuxCPU{Shares: given(uint64(limits.GetCpuShares())), Quota: given(limits.GetCpuQuota()),
			Period: given(uint64(limits.GetCpuPeriod())), Cpus: limits.GetCpusetCpus(), Mems: limits.GetCpusetMems()},
		Memory: &specs.LinuxMemory{Limit: given(limits.GetMemoryLimitInBytes()),
			Swap: given(limits.GetMemorySwapLimitInBytes())},
	}}}
	text, err := json.Marshal(map[string]any{"pid": c.Pid, "sandboxID": c.SandboxID, "name": c.Name,
		"runtimeSpec": spec})
	return string(text), err
}

// given returns nil for 0, which the CRI and Docker use for a value that is not given.
func given[T int64 | uint64](n T) *T {
	if n == 0 {
		return nil
	}
	return &n
}

package stats

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockerstats"
)

// containerOf describes a container for package dockerstats.
func containerOf(c *index.Record) dockerstats.Container {
	return dockerstats.Container{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.ID, Metadata: c.Container, Labels: c.Labels,
			Annotations: c.Annotations},
		Image: c.Image, PID: c.Pid, Started: time.Unix(0, c.Times.Started), UpperDir: c.Files.Upper,
	}
}

// sandboxOf describes a sandbox for package dockerstats. A sandbox without a parent cgroup of its own is in Docker's
// parent cgroup, with all other containers.
func sandboxOf(c *index.Record, containers []dockerstats.Container) dockerstats.Sandbox {
	return dockerstats.Sandbox{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: c.ID, Metadata: c.Pod, Labels: c.Labels,
			Annotations: c.Annotations},
		PID: c.Pid, Started: time.Unix(0, c.Times.Started), HostNetwork: c.HostNetwork(),
		OwnCgroup: c.Host.CgroupParent != "", Containers: containers,
	}
}

// located adds the name of the file system to the usage of a writable layer: the data root, as in ImageFsInfo.
func located(c *runtimeapi.ContainerStats, root string) *runtimeapi.ContainerStats {
	if c.WritableLayer != nil {
		c.WritableLayer.FsId = &runtimeapi.FilesystemIdentifier{Mountpoint: root}
	}
	return c
}

// matches reports whether a filter lets a container through.
func matches(c *index.Record, f *runtimeapi.ContainerStatsFilter) bool {
	return (f.GetId() == "" || f.GetId() == c.ID) &&
		(f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.SandboxID) &&
		selects(f.GetLabelSelector(), c.Labels)
}

func selects(wanted, labels map[string]string) bool {
	for key, value := range wanted {
		if own, ok := labels[key]; !ok || own != value {
			return false
		}
	}
	return true
}

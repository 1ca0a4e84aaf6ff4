package pressure

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/base/quota"
	"github.com/berth-run/berth/internal/node/eviction/storage"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/userns"
	"github.com/berth-run/berth/internal/pod/steps/volume/emptydir"
)

// volumeOf measures the local volumes of one pod.
func volumeOf(p *corev1.Pod) volume { return volume{exact: userns.Wanted(p)} }

type volume struct {
	// exact: the pod cannot move its files out of a project. The kernel allows that in the machine's user namespace
	// only. The kubelet uses quotas for the same pods.
	exact bool
}

// measure returns the usage of a volume: the count of its project if that is exact, and otherwise the result of a walk.
// A walk finds no files without a name, so the larger figure counts.
func (v volume) measure(ctx context.Context, path string) (diskusage.Usage, error) {
	counted, ok, err := quota.Measure(path)
	if ok && v.exact {
		return counted, nil
	}
	if err != nil {
		counted = diskusage.Usage{} // the walk shows whether the volume is gone
	}
	walked, err := diskusage.Measure(ctx, path)
	return diskusage.Usage{Bytes: max(walked.Bytes, counted.Bytes), Inodes: max(walked.Inodes, counted.Inodes)}, err
}

// EmptyDir makes emptyDirs. It counts those with a limit by project quotas, if the file system of the root directory
// has them and mode does not say otherwise. allocatable is what all pods of the node may have.
func EmptyDir(root string, mode storage.Mode, allocatable corev1.ResourceList, log *slog.Logger) emptydir.Kind {
	q := emptydir.Quotas{Projects: &quota.Projects{}, Enforce: mode.Quotas && !mode.Off, Log: log}
	if mode.Walk {
		q.Projects = nil
	}
	if q.Enforce {
		if s, err := quota.StateOf(root); err != nil || !s.Limits {
			log.Warn("--empty-dir-quota has no effect, evicting pods that exceed a sizeLimit: the file system "+
				"enforces no project quotas; next: mount it with the option prjquota", "dir", root, "err", err)
		}
	}
	return emptydir.Kind{Allocatable: allocatable.Memory().Value(), Quotas: q, Limits: memoryLimits{}}
}

// memoryLimits has the memory limits of the cgroups of pods. It implements emptydir.Limits.
type memoryLimits struct{}

// Memory implements emptydir.Limits.
func (memoryLimits) Memory(p *corev1.Pod) int64 { return cgroup.ForPod(p, cgroup.Options{}).Memory }

package sandbox

import (
	"fmt"

	cgroups "github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// metricsOf reads the use of CPU and memory of a pod's cgroup, in the form that the CRI plugin decodes.
func metricsOf(id, parent string) (*types.Metric, error) {
	if parent == "" {
		return nil, fmt.Errorf("read metrics of sandbox %s: it has no cgroup parent: %w", id, errdefs.ErrUnavailable)
	}
	read := readV1
	if cgroups.Mode() == cgroups.Unified {
		read = readV2
	}
	stats, err := read(parent)
	if err != nil {
		return nil, fmt.Errorf("read cgroup %s of sandbox %s: %w", parent, id, err)
	}
	data, err := typeurl.MarshalAnyToProto(stats)
	if err != nil {
		return nil, err
	}
	return &types.Metric{Timestamp: timestamppb.Now(), ID: id, Data: data}, nil
}

func readV1(parent string) (any, error) {
	group, err := cgroup1.Load(cgroup1.StaticPath(parent))
	if err != nil {
		return nil, err
	}
	return group.Stat(cgroup1.IgnoreNotExist)
}

func readV2(parent string) (any, error) {
	group, err := cgroup2.Load(parent)
	if err != nil {
		return nil, err
	}
	return group.StatFiltered(cgroup2.StatCPU | cgroup2.StatMemory)
}

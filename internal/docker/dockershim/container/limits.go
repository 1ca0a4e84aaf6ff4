package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/moby/moby/client"
	"github.com/opencontainers/cgroups"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockershim/translate"
)

// hierarchy is where the machine's cgroups are mounted.
const hierarchy = "/sys/fs/cgroup"

// limits writes the limits that the Engine API lacks into the files of cgroups: hugepages and the files of cgroup v2
// (unified). It can also remove the memory limit of a running container.
type limits struct {
	mu sync.Mutex
	// lifted has true for each container whose memory limit was removed, and false for other known containers. Docker
	// still reports the limit.
	lifted map[string]bool
}

// UpdateContainerResources implements the CRI. Docker keeps a limit whose new value is 0.
func (s *Service) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (
	*runtimeapi.UpdateContainerResourcesResponse, error) {
	c, err := s.Index.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	wanted := r.GetLinux()
	lift := wanted.GetMemoryLimitInBytes() < 0
	if c.Exited() || lift && !c.Running() {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s does not run, but is %s", c.ID, c.State)
	}
	next := translate.Limits(wanted)
	if lift {
		next.Memory, next.MemorySwap = 0, 0
	}
	if _, err := s.Client.ContainerUpdate(ctx, c.ID, client.ContainerUpdateOptions{Resources: &next}); err != nil {
		return nil, docker.Error(err)
	}
	if wanted.GetMemoryLimitInBytes() != 0 {
		if err := s.limit.setLifted(c, lift); err != nil {
			return nil, err
		}
	}
	if c.Running() {
		if err := write(c.Pid, files(wanted)); err != nil {
			return nil, err
		}
	}
	_, err = s.Index.Refresh(ctx, c.ID)
	return &runtimeapi.UpdateContainerResourcesResponse{}, err
}

// afterStart writes the limits of a container that has just started.
func (l *limits) afterStart(c *index.Record) error {
	if c == nil || !c.Running() || c.Cgroup == "" {
		return nil
	}
	wanted, err := translate.CgroupOf(c.Cgroup)
	if err != nil {
		return err
	}
	return write(c.Pid, files(wanted))
}

// of returns the limits of a container.
func (l *limits) of(c *index.Record) *runtimeapi.LinuxContainerResources {
	if !c.Running() || c.Resources.GetMemoryLimitInBytes() == 0 {
		return c.Resources
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	gone, known := l.lifted[c.ID]
	if !known { // an earlier process may have lifted it
		gone = unlimited(c.Pid)
		l.note(c.ID, gone)
	}
	if !gone {
		return c.Resources
	}
	r := proto.CloneOf(c.Resources)
	r.MemoryLimitInBytes, r.MemorySwapLimitInBytes = 0, 0
	return r
}

func (l *limits) note(id string, gone bool) {
	if l.lifted == nil {
		l.lifted = map[string]bool{}
	}
	l.lifted[id] = gone
}

func (l *limits) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lifted, id)
}

// setLifted removes the memory limit of a running container if gone is true. It records whether the container has a
// limit.
func (l *limits) setLifted(c *index.Record, gone bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone {
		// On cgroup v1, memory cannot have a higher limit than memory and swap together, so that limit goes first. A
		// kernel may lack it.
		swap := write(c.Pid, map[string]string{"memory.memsw.limit_in_bytes": "-1"})
		if swap != nil && !errors.Is(swap, fs.ErrNotExist) {
			return swap
		}
		if err := write(c.Pid, unlimitedFiles()); err != nil {
			return err
		}
	}
	l.note(c.ID, gone)
	return nil
}

func unlimitedFiles() map[string]string {
	if cgroups.IsCgroup2UnifiedMode() {
		return map[string]string{"memory.max": "max"}
	}
	return map[string]string{"memory.limit_in_bytes": "-1"}
}

// unlimited reports whether the cgroup of a process has no memory limit.
func unlimited(pid int) bool {
	name := "memory.limit_in_bytes"
	if cgroups.IsCgroup2UnifiedMode() {
		name = "memory.max"
	}
	path, err := cgroupFile(pid, name)
	if err != nil {
		return false
	}
	text, err := os.ReadFile(path)
	value := strings.TrimSpace(string(text))
	const digits = 19 // of the kernel's largest value, in bytes
	return err == nil && (value == "max" || len(value) >= digits)
}

// write writes files of the cgroup of a process.
func write(pid int, values map[string]string) error {
	for name, value := range values {
		path, err := cgroupFile(pid, name)
		if err == nil {
			err = os.WriteFile(path, []byte(value), 0)
		}
		if err != nil {
			return fmt.Errorf("set %s of the container's cgroup to %s: %w", name, value, err)
		}
	}
	return nil
}

// cgroupFile returns the path of a file in the cgroup of a process. The name begins with the controller.
func cgroupFile(pid int, name string) (string, error) {
	groups, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	if cgroups.IsCgroup2UnifiedMode() {
		return filepath.Join(hierarchy, groups[""], name), nil
	}
	controller, _, _ := strings.Cut(name, ".")
	group, ok := groups[controller]
	if !ok {
		return "", fmt.Errorf("the machine has no cgroup controller %s", controller)
	}
	return filepath.Join(hierarchy, controller, group, name), nil
}

// files returns the content of the cgroup's files for limits that the Engine API lacks.
func files(r *runtimeapi.LinuxContainerResources) map[string]string {
	return translate.CgroupFiles(r, cgroups.IsCgroup2UnifiedMode())
}

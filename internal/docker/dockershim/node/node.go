package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/capability"
	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/translate"
)

const (
	// kept is how long a copy of the Engine's info is used.
	kept = 30 * time.Second
	// patience is how long the Engine may take to answer a check of its health. The callers' own limit is 10 s.
	patience = 4 * time.Second
	// startTime is how long Version waits for the first list of containers.
	startTime = 2 * time.Second
)

// Index reports whether the index of containers follows the Engine's events.
type Index interface {
	Synced() error
	// AwaitSync waits until the index follows the events for the first time.
	AwaitSync(ctx context.Context) error
}

// Network is the pod network.
type Network interface {
	// Ready returns why new pods cannot have a network, or nil.
	Ready() error
	// SetPodCIDR sets the ranges of new pods: CIDR[,CIDR].
	SetPodCIDR(ctx context.Context, cidrs string) error
}

// Service answers the calls.
type Service struct {
	engine  *docker.Client
	index   Index
	network Network
	// sandboxImage is the name of the image of pause containers.
	sandboxImage string

	mu   sync.Mutex
	info atomic.Pointer[system.Info] // written with mu held
	read time.Time

	store atomic.Pointer[string] // nil before the first answer
}

// New allocates a service.
func New(engine *docker.Client, index Index, network Network, sandboxImage string) *Service {
	return &Service{engine: engine, index: index, network: network, sandboxImage: sandboxImage}
}

// Info returns the Engine's info: its version, directories, runtimes and security options.
func (s *Service) Info(ctx context.Context) (*system.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if info := s.info.Load(); info != nil && time.Since(s.read) < kept {
		return info, nil
	}
	r, err := s.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, docker.Error(err)
	}
	s.info.Store(&r.Info)
	s.read = time.Now()
	return &r.Info, nil
}

// Root returns the Engine's data root. It asks the Engine only the first time, because lists of statistics need the
// root and must not wait for an Engine that hangs. An Engine with another root has none of the containers from before.
func (s *Service) Root(ctx context.Context) (string, error) {
	info := s.info.Load()
	if info == nil {
		var err error
		if info, err = s.Info(ctx); err != nil {
			return "", err
		}
	}
	return info.DockerRootDir, nil
}

// Facts returns the properties that requests to the Engine depend on.
func (s *Service) Facts(ctx context.Context) (translate.Facts, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return translate.Facts{}, err
	}
	floor, err := oomFloor()
	if err != nil {
		return translate.Facts{}, err
	}
	_, noIPv6 := os.Stat("/proc/sys/net/ipv6")
	f := facts(info, s.engine.Supports, floor)
	f.IPv6 = noIPv6 == nil
	return f, nil
}

// oomFloor returns the lowest oom_score_adj that containers can have. Without CAP_SYS_RESOURCE it is this process's own
// (proc_pid_oom_score_adj(5)). The Engine then lacks the capability too.
func oomFloor() (int, error) {
	const lowest = -1000
	own, err := capability.Effective()
	if err != nil || own.Has(unix.CAP_SYS_RESOURCE) {
		return lowest, err
	}
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Version implements the CRI. It fails while the index does not follow the Engine, as other calls do. It is the first
// call of every caller, so it waits a moment for a shim that has just started.
func (s *Service) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	first, stop := context.WithTimeout(ctx, startTime)
	_ = s.index.AwaitSync(first)
	stop()
	if err := s.index.Synced(); err != nil {
		return nil, err
	}
	v, err := s.engine.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, docker.Error(err)
	}
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "docker", RuntimeVersion: v.Version,
		RuntimeApiVersion: "v1"}, nil
}

// Status implements the CRI. An Engine that does not answer in time is not ready.
func (s *Service) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := s.engine.Negotiate(ctx)
	if err == nil {
		err = s.index.Synced()
	}
	answer := &runtimeapi.StatusResponse{Features: &runtimeapi.RuntimeFeatures{}}
	if err == nil {
		var info *system.Info
		if info, err = s.Info(ctx); err == nil {
			answer.RuntimeHandlers = handlers(info, s.engine.Supports(docker.RecursiveReadOnly))
		}
	}
	answer.Status = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		condition(runtimeapi.RuntimeReady, "DockerNotReady", err),
		condition(runtimeapi.NetworkReady, "NetworkNotReady", s.network.Ready()),
	}}
	if r.GetVerbose() {
		text, err := json.Marshal(map[string]any{"sandboxImage": s.sandboxImage, "socket": s.engine.Socket(),
			"api": s.engine.ClientVersion()})
		if err != nil {
			return nil, err
		}
		answer.Info = map[string]string{"config": string(text)}
	}
	return answer, nil
}

func condition(kind, reason string, err error) *runtimeapi.RuntimeCondition {
	if err == nil {
		return &runtimeapi.RuntimeCondition{Type: kind, Status: true}
	}
	return &runtimeapi.RuntimeCondition{Type: kind, Reason: reason, Message: err.Error()}
}

// RuntimeConfig implements the CRI.
func (s *Service) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (
	*runtimeapi.RuntimeConfigResponse, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if info.CgroupDriver == systemd {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig implements the CRI.
func (s *Service) UpdateRuntimeConfig(ctx context.Context, r *runtimeapi.UpdateRuntimeConfigRequest) (
	*runtimeapi.UpdateRuntimeConfigResponse, error) {
	cidrs := r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if cidrs == "" {
		return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
	}
	if err := s.network.SetPodCIDR(ctx, cidrs); err != nil {
		return nil, fmt.Errorf("use pod CIDR %s: %w", cidrs, err)
	}
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

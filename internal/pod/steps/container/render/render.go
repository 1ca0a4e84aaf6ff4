package render

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Input is everything that a container's configuration depends on.
type Input struct {
	Pod       *corev1.Pod
	QOS       corev1.PodQOSClass
	Container pod.Container
	// RestartCount and Backoff belong to the instance that is about to be created.
	RestartCount int
	Backoff      time.Duration
	Image        *runtimeapi.Image
	// PodIPs has the primary address first. It is ignored on the host network.
	PodIPs []string
	// TargetID is the container whose PID namespace this one joins, or "".
	TargetID string
	// Userns has the id mappings of the pod's sandbox. It is nil in the host's user namespace.
	Userns  *runtimeapi.UserNamespace
	Sources Sources
	// Mounted are the pod's volumes by name.
	Mounted map[string]pod.Volume
	// Volumes has the host path of each of the container's volumeMounts, in their order.
	Volumes []string
	// HostsFile and TerminationLog are files on the host, or "".
	HostsFile      string
	TerminationLog string
	Node           Node
}

// Quota exempts containers from CPU quotas.
type Quota interface {
	// Unthrottled reports whether a container has exclusive CPUs and therefore no quota.
	Unthrottled(*corev1.Pod, pod.Container) bool
}

// Node has the properties of the node that a configuration depends on.
type Node struct {
	// CgroupV2 is set if the node uses the unified cgroup hierarchy.
	CgroupV2 bool
	// MemoryCapacity and SwapCapacity are in bytes.
	MemoryCapacity int64
	SwapCapacity   int64
	// Allocatable has the limits that resourceFieldRef shows for a container without limits.
	Allocatable corev1.ResourceList
	// HostIPs has the primary address first.
	HostIPs []string
	// CFSQuota enforces CPU limits, in periods of CFSPeriod (default 100 ms).
	CFSQuota  bool
	CFSPeriod time.Duration
	// Quota exempts containers from CPU quotas. nil means that it exempts none.
	Quota Quota
	// SwapController is set if the kernel accounts for swap. LimitedSwap is memorySwap.swapBehavior LimitedSwap
	// (KEP-2400), which works on cgroup v2 only.
	SwapController bool
	LimitedSwap    bool
	// StaticCritical makes every static pod critical. Critical pods use no swap.
	StaticCritical bool
	// GroupOOMKill makes the kernel kill all processes of a container together when it is out of memory (cgroup v2
	// only). It is the opposite of the kubelet's singleProcessOOMKill.
	GroupOOMKill bool
	// MemoryQoS throttles and protects memory (KEP-2570), on cgroup v2 only. nil means off.
	MemoryQoS *config.MemoryQoS
	// HugePages are the page sizes of the machine as the hugetlb controller spells them, such as "2MB".
	HugePages []string
	// MinOOMScoreAdj is the lowest oom_score_adj that the runtime can set. nil means any.
	MinOOMScoreAdj *int64
	// SeccompDefault makes RuntimeDefault the profile of containers that name none.
	SeccompDefault bool
	// SeccompRoot is the directory of Localhost profiles.
	SeccompRoot string
	// RecursiveReadOnly is set if the runtime supports recursive read-only mounts (KEP-3857).
	RecursiveReadOnly bool
	// SELinux is set if the host runs SELinux, enforcing or permissive.
	SELinux bool
	// MaskedPaths are hidden besides the usual paths: they would reveal the temperature of the host's CPUs.
	MaskedPaths []string
}

// Config makes the configuration. Its errors concern the pod's spec. The caller reports them with the reason
// CreateContainerConfigError.
func Config(in Input) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	env, err := environment(in)
	if err != nil {
		return nil, err
	}
	mounts, err := mounts(in)
	if err != nil {
		return nil, err
	}
	devices, err := devices(in)
	if err != nil {
		return nil, err
	}
	security, err := securityContext(in)
	if err != nil {
		return nil, err
	}
	signal, err := stopSignal(c)
	if err != nil {
		return nil, err
	}
	annotations, err := annotations(in)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: in.Image.GetId(), UserSpecifiedImage: c.Image},
		Command:     pod.ExpandAll(c.Command, env.lookup),
		Args:        pod.ExpandAll(c.Args, env.lookup),
		WorkingDir:  c.WorkingDir,
		Envs:        env.list(),
		Mounts:      mounts,
		Devices:     devices,
		Labels:      labels(in),
		Annotations: annotations,
		LogPath:     podlog.File(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  signal,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       Resources(in),
			SecurityContext: security,
		},
	}, nil
}

func stopSignal(c pod.Container) (runtimeapi.Signal, error) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, nil
	}
	// CRI spells SIGRTMIN+1 as SIGNAL_SIGRTMINPLUS1.
	spelled := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal))
	v, ok := runtimeapi.Signal_value["SIGNAL_"+spelled]
	if !ok {
		return 0, fmt.Errorf("container %q has the unknown stopSignal %q", c.Name, *c.Lifecycle.StopSignal)
	}
	return runtimeapi.Signal(v), nil
}

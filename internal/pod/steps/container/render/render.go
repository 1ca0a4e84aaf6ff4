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
	// RestartCount and Backoff of the instance to be created.
	RestartCount int
	Backoff      time.Duration
	Image        *runtimeapi.Image
	// PodIPs has the primary address first; not looked at on the host network.
	PodIPs []string
	// TargetID is the container whose PID namespace is joined, "" for none.
	TargetID string
	// Userns are the mappings of the pod's sandbox; nil on the host's user namespace.
	Userns  *runtimeapi.UserNamespace
	Sources Sources
	// Mounted are the pod's volumes by name.
	Mounted map[string]pod.Volume
	// Volumes are the paths on the host of what the container's volumeMounts
	// show, in their order.
	Volumes []string
	// HostsFile and TerminationLog are files on the host; "" for none.
	HostsFile      string
	TerminationLog string
	Node           Node
}

// Node is what a configuration depends on besides the pod.
type Node struct {
	// CgroupV2 says that the unified hierarchy is in charge.
	CgroupV2 bool
	// MemoryCapacity and SwapCapacity in bytes.
	MemoryCapacity int64
	SwapCapacity   int64
	// Allocatable are the limits that resourceFieldRef shows for a container without any.
	Allocatable corev1.ResourceList
	// HostIPs has the primary address first.
	HostIPs []string
	// CFSQuota enforces CPU limits, in periods of CFSPeriod (default 100 ms).
	CFSQuota  bool
	CFSPeriod time.Duration
	// Unthrottled says that a container has CPUs of its own and so no quota. nil: none has.
	Unthrottled func(*corev1.Pod, pod.Container) bool
	// SwapController says that the kernel can account for swap. LimitedSwap is
	// memorySwap.swapBehavior LimitedSwap (KEP-2400), in effect on cgroup v2 only.
	SwapController bool
	LimitedSwap    bool
	// GroupOOMKill has the kernel kill all of a container at once (cgroup v2
	// only); the opposite of the kubelet's singleProcessOOMKill.
	GroupOOMKill bool
	// MemoryQoS slows down and protects (KEP-2570), on cgroup v2 only; nil: off.
	MemoryQoS *config.MemoryQoS
	// HugePages are the page sizes of the machine as the hugetlb controller spells them, e.g. "2MB".
	HugePages []string
	// MinOOMScoreAdj is the lowest oom_score_adj that the runtime can set; nil: any.
	MinOOMScoreAdj *int64
	// SeccompDefault makes RuntimeDefault the profile of who asks for none.
	SeccompDefault bool
	// SeccompRoot is the directory of Localhost profiles.
	SeccompRoot string
	// RecursiveReadOnly says that the runtime supports such mounts (KEP-3857).
	RecursiveReadOnly bool
	// SELinux says that the host enforces or permits with SELinux.
	SELinux bool
	// MaskedPaths are hidden besides the usual ones: what leaks the host's
	// temperature, per CPU.
	MaskedPaths []string
}

// Config makes the configuration. Its errors are about the pod's spec and are
// meant for the reason CreateContainerConfigError.
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
		Command:     expandAll(c.Command, env.lookup),
		Args:        expandAll(c.Args, env.lookup),
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

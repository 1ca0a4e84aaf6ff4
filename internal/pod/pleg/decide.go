package pleg

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// listed is the result of the runtime's two list calls for one pod or all pods.
type listed struct {
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

// byPod splits a complete listing by pod. It skips what has no pod label.
func (l listed) byPod() map[types.UID]listed {
	pods := map[types.UID]listed{}
	for _, s := range l.sandboxes {
		if uid := types.UID(s.Labels[pod.LabelPodUID]); uid != "" {
			one := pods[uid]
			one.sandboxes = append(one.sandboxes, s)
			pods[uid] = one
		}
	}
	for _, c := range l.containers {
		if uid := types.UID(c.Labels[pod.LabelPodUID]); uid != "" {
			one := pods[uid]
			one.containers = append(one.containers, c)
			pods[uid] = one
		}
	}
	return pods
}

// same reports whether a listing of one pod contains nothing that is not in o.
func (l listed) same(o *pod.Observed) bool {
	if o == nil {
		return len(l.sandboxes) == 0 && len(l.containers) == 0
	}
	if len(l.sandboxes) != len(o.Sandboxes) || len(l.containers) != len(o.Containers) {
		return false
	}
	for _, s := range l.sandboxes {
		was, ok := sandboxOf(o, s.Id)
		if !ok || was.Ready != (s.State == runtimeapi.PodSandboxState_SANDBOX_READY) {
			return false
		}
	}
	for _, c := range l.containers {
		was, ok := containerOf(o, c.Id)
		if !ok || was.State != stateOf(c.State) {
			return false
		}
	}
	return true
}

func sandboxOf(o *pod.Observed, id string) (pod.SandboxStatus, bool) {
	if o == nil {
		return pod.SandboxStatus{}, false
	}
	i := slices.IndexFunc(o.Sandboxes, func(s pod.SandboxStatus) bool { return s.ID == id })
	if i < 0 {
		return pod.SandboxStatus{}, false
	}
	return o.Sandboxes[i], true
}

func containerOf(o *pod.Observed, id string) (pod.ContainerStatus, bool) {
	for _, c := range o.ContainersOf() {
		if c.ID == id {
			return c, true
		}
	}
	return pod.ContainerStatus{}, false
}

func stateOf(s runtimeapi.ContainerState) pod.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return pod.StateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return pod.StateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return pod.StateExited
	default:
		return pod.StateUnknown
	}
}

func sandboxStatus(listed *runtimeapi.PodSandbox, s *runtimeapi.PodSandboxStatus) pod.SandboxStatus {
	status := pod.SandboxStatus{
		ID:          listed.Id,
		Attempt:     listed.GetMetadata().GetAttempt(),
		Ready:       s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   unixNano(s.GetCreatedAt()),
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
	}
	if status.HostNetwork {
		return status
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		status.IPs = append(status.IPs, ip)
	}
	for _, ip := range s.GetNetwork().GetAdditionalIps() {
		status.IPs = append(status.IPs, ip.GetIp())
	}
	return status
}

func containerStatus(listed *runtimeapi.Container, s *runtimeapi.ContainerStatus) pod.ContainerStatus {
	a := s.GetAnnotations()
	// Counts are of type int32 in a pod's status.
	count, err := strconv.ParseUint(a[pod.AnnotationRestartCount], 10, 31)
	if err != nil {
		count = min(uint64(s.GetMetadata().GetAttempt()), math.MaxInt32)
	}
	backoff, err := time.ParseDuration(a[pod.AnnotationBackoff])
	if err != nil || backoff < 0 {
		backoff = 0 // not started by Berth: the first delay follows
	}
	image := s.GetImage().GetUserSpecifiedImage()
	if image == "" {
		image = s.GetImage().GetImage()
	}
	state := stateOf(s.State)
	if s.StartedAt == 0 && (listed.CreatedAt == 0 || abandoned(s)) {
		// containerd was killed while it created the container, before it wrote the file with the container's state. It
		// lists such a container without a time: first as unknown, and as exited while it removes it. The container has
		// never run.
		state = pod.StateCreated
	}
	var grace *int64
	if g, err := strconv.ParseInt(a[pod.AnnotationTerminationGrace], 10, 64); err == nil {
		grace = &g
	}
	return pod.ContainerStatus{
		ID:                     s.Id,
		SandboxID:              listed.PodSandboxId,
		Name:                   s.GetLabels()[pod.LabelContainerName],
		State:                  state,
		CreatedAt:              unixNano(s.CreatedAt),
		StartedAt:              unixNano(s.StartedAt),
		FinishedAt:             unixNano(s.FinishedAt),
		ExitCode:               s.ExitCode,
		Reason:                 s.Reason,
		Message:                s.Message,
		Image:                  image,
		ImageID:                s.ImageRef,
		Hash:                   a[pod.AnnotationHash],
		RestartCount:           int(count),
		TerminationMessagePath: a[pod.AnnotationTerminationMessagePath],
		TerminationFromLogs:    a[pod.AnnotationTerminationMessagePolicy] == "FallbackToLogsOnError",
		Backoff:                backoff,
		LogPath:                s.LogPath,
		TerminationGrace:       grace,
		PreStop:                a[pod.AnnotationPreStopHandler],
		User:                   userOf(s.GetUser().GetLinux()),
	}
}

// abandoned reports whether a start was given up before the container's process existed, for a reason that is not the
// container's. The agent may have been killed: an external containerd then cancels the start, which kills a shim that
// is starting too. A start that was cancelled later ("failed to start containerd task") may have run for a moment. Or
// the sandbox had ended, as containerd, runc or Docker Engine found.
func abandoned(s *runtimeapi.ContainerStatus) bool {
	if s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.Reason != "StartError" {
		return false
	}
	create, creating := strings.CutPrefix(s.Message, "failed to create containerd task: ")
	switch {
	case creating:
		return strings.Contains(create, "context canceled") || strings.Contains(create, "ttrpc: closed") ||
			strings.Contains(create, "failed to start shim: start failed: : signal: killed") ||
			strings.Contains(create, "failed to start shim: start failed: dial unix ") ||
			strings.Contains(create, "namespace path: lstat /proc/")
	case strings.HasPrefix(s.Message, "sandbox container "):
		return strings.HasSuffix(s.Message, " is not running")
	case strings.HasPrefix(s.Message, "cannot join network "): // "namespace" was added by a later Engine
		return strings.Contains(s.Message, " of a non running container: ")
	}
	return false
}

func userOf(u *runtimeapi.LinuxContainerUser) *corev1.ContainerUser {
	if u == nil {
		return nil
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.Uid, GID: u.Gid,
		SupplementalGroups: u.SupplementalGroups}}
}

// order sorts the newest first. The attempt counts decide, because the machine's clock may have been set back in
// between.
func order(o *pod.Observed) {
	slices.SortStableFunc(o.Sandboxes, func(a, b pod.SandboxStatus) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
	slices.SortStableFunc(o.Containers, func(a, b pod.ContainerStatus) int {
		return cmp.Or(cmp.Compare(b.RestartCount, a.RestartCount), b.CreatedAt.Compare(a.CreatedAt))
	})
}

func unixNano(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

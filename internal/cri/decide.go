package cri

import (
	"math"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// probeTimeout limits Version and Status, which check whether the runtime answers. Waiting the full request timeout for
// them would hide that the runtime hangs.
const probeTimeout = 10 * time.Second

// pullTimeout limits a pull. The kubelet sets no limit, since runtimes cancel a pull that makes no progress; but a
// runtime that hangs does not. The runtime keeps the fetched bytes, and the next pull resumes from there.
const pullTimeout = time.Hour

// execTimeout limits a command in ExecSync that has no timeout of its own. The kubelet leaves such a command to the
// runtime. Berth limits it, so that a runtime that hangs blocks no caller for ever.
const execTimeout = time.Hour

// limit is the table of deadlines. It returns how long a call may take, given its request and the configured request
// timeout. 0 means as long as the caller's context allows. The values are the kubelet's unless a comment says
// otherwise.
func limit(req any, timeout time.Duration) time.Duration {
	switch r := req.(type) {
	case *runtimeapi.VersionRequest, *runtimeapi.StatusRequest:
		return min(timeout, probeTimeout) // the kubelet waits timeout
	case *runtimeapi.RunPodSandboxRequest:
		return 2 * timeout // includes the set-up of the network
	case *runtimeapi.StopContainerRequest:
		return timeout + seconds(r.Timeout)
	case *runtimeapi.ExecSyncRequest:
		if r.Timeout <= 0 {
			return timeout + execTimeout
		}
		return timeout + seconds(r.Timeout)
	case *runtimeapi.CheckpointContainerRequest:
		return max(timeout, seconds(r.Timeout))
	case *runtimeapi.PullImageRequest:
		return max(timeout, pullTimeout)
	case *runtimeapi.GetEventsRequest:
		return 0 // a stream of events has no deadline
	}
	return timeout
}

// seconds converts a number of seconds without overflow, even after a timeout is added to it. A huge grace period thus
// means "very long", not "already over".
func seconds(s int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Second) / 2
	return time.Duration(max(0, min(s, most))) * time.Second
}

// callName returns "RunPodSandbox" for "/runtime.v1.RuntimeService/RunPodSandbox".
func callName(method string) string {
	return method[strings.LastIndexByte(method, '/')+1:]
}

// operation is the kubelet's operation_type of a call: the name in snake case, with PodSandbox as one word. One name is
// shorter in the kubelet.
func operation(call string) string {
	if call == "UpdateContainerResources" {
		return "update_container"
	}
	call = strings.ReplaceAll(call, "PodSandbox", "Podsandbox")
	var b strings.Builder
	for i, r := range call {
		if 'A' <= r && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

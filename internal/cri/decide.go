package cri

import (
	"math"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// probeTimeout bounds Version and Status, which only tell whether the runtime
// lives: waiting the full request timeout for them would hide that it hangs.
const probeTimeout = 10 * time.Second

// pullTimeout bounds a pull, which the kubelet leaves to the runtime. Runtimes
// give up a pull that makes no progress, but one that hangs does not. What has
// been fetched is kept: the next try goes on from there.
const pullTimeout = time.Hour

// execTimeout bounds a command that is run without a timeout of its own, which
// the kubelet leaves to the runtime: nothing waits for ever for one that hangs.
const execTimeout = time.Hour

// limit is the table of deadlines: how long a call may take, given its request
// and the configured request timeout; 0 is as long as the caller's context
// allows. Values are the kubelet's unless a comment says otherwise.
func limit(req any, timeout time.Duration) time.Duration {
	switch r := req.(type) {
	case *runtimeapi.VersionRequest, *runtimeapi.StatusRequest:
		return min(timeout, probeTimeout) // the kubelet waits timeout
	case *runtimeapi.RunPodSandboxRequest:
		return 2 * timeout // the network is set up inside
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
		return 0 // nothing bounds a stream of events
	}
	return timeout
}

// seconds converts without overflow, also after adding a timeout: an absurd
// grace period means "very long", not "already over".
func seconds(s int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Second) / 2
	return time.Duration(max(0, min(s, most))) * time.Second
}

// callName takes "RunPodSandbox" out of "/runtime.v1.RuntimeService/RunPodSandbox".
func callName(method string) string {
	return method[strings.LastIndexByte(method, '/')+1:]
}

// operation is the kubelet's operation_type of a call: snake case, except that
// PodSandbox is one word, and one name that the kubelet shortens.
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

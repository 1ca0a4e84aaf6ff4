package logs

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// chooseInstance returns the restart count of the container instance whose log to read. requested is the
// instance that the request names, or nil. If there is no such instance, the error says so in the words of
// the Kubernetes API.
func chooseInstance(p *corev1.Pod, opts *corev1.PodLogOptions, requested *int64) (int, error) {
	st := containers.Status(p, opts.Container)
	newest := int(st.RestartCount)
	ran := st.State.Running != nil || st.State.Terminated != nil
	ranBefore := st.LastTerminationState.Terminated != nil
	switch {
	case requested != nil && *requested <= int64(newest) && (ran || ranBefore):
		return int(*requested), nil
	case requested != nil && (ran || ranBefore):
		return 0, answer.BadRequest(fmt.Sprintf("container %q in pod %q has no instance %d", opts.Container, p.Name,
			*requested),
			fmt.Sprintf("the newest is %d", newest))
	case opts.Previous && !ranBefore:
		return 0, answer.BadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", opts.Container,
			p.Name),
			"it has not been restarted; leave out --previous")
	case opts.Previous && ran:
		return max(newest-1, 0), nil
	}
	// While a container waits for its restart, its last instance is also the previous one.
	if n, started := containers.Newest(st); started {
		return n, nil
	}
	why := "its pod is " + strings.ToLower(cmp.Or(string(p.Status.Phase), "not started"))
	if w := st.State.Waiting; w != nil && w.Reason != "" {
		// These are the texts of kubectl logs.
		why = cmp.Or(map[string]string{
			reason.ErrImagePull: "image can't be pulled", reason.ImagePullBackOff: "trying and failing to pull image",
		}[w.Reason], w.Reason)
	}
	return 0, answer.BadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", opts.Container, p.Name,
		why),
		fmt.Sprintf("see why with \"berth describe pod %s -n %s\"", p.Name, p.Namespace))
}

// instanceEnded reports whether the n-th instance of a container has ended.
func instanceEnded(p *corev1.Pod, container string, n int) bool {
	st := containers.Status(p, container)
	return pod.Ended(p.Status.Phase) ||
		int(st.RestartCount) > n || int(st.RestartCount) == n && st.State.Running == nil
}

// readOptions converts the options of a request to options of package podlog.
func readOptions(o *corev1.PodLogOptions, now time.Time) podlog.Options {
	r := podlog.Options{Tail: o.TailLines, LimitBytes: o.LimitBytes, Timestamps: o.Timestamps, Follow: o.Follow}
	switch {
	case o.SinceTime != nil:
		r.Since = o.SinceTime.Time
	case o.SinceSeconds != nil:
		r.Since = now.Add(-time.Duration(*o.SinceSeconds) * time.Second)
	}
	if o.Stream != nil && *o.Stream != corev1.LogStreamAll {
		r.Stream = podlog.Stream(strings.ToLower(*o.Stream))
	}
	return r
}

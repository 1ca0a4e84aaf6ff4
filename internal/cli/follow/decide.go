package follow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// progress returns one line for each difference between two states of a pod. was is nil for a new pod.
func progress(was, is *corev1.Pod) []string {
	if was == nil {
		was = &corev1.Pod{}
	}
	var lines []string
	for _, c := range pod.Containers(is) {
		if line := containerProgress(containers.Status(was, c.Name), containers.Status(is, c.Name)); line != "" {
			lines = append(lines, label(c)+" "+line)
		}
	}
	if line := conditionProgress(was, is, corev1.PodScheduled); line != "" {
		lines = append(lines, "waiting: "+line)
	}
	if !ready(was) && ready(is) {
		lines = append(lines, "ready")
	}
	if ready(was) && !ready(is) && is.DeletionTimestamp == nil && !ended(is) {
		lines = append(lines, "not ready: "+conditionMessage(is, corev1.PodReady))
	}
	if was.Status.Phase != is.Status.Phase && ended(is) {
		lines = append(lines, strings.ToLower(string(is.Status.Phase))+because(is.Status.Reason, is.Status.Message))
	}
	if was.DeletionTimestamp == nil && is.DeletionTimestamp != nil && !ended(is) {
		grace := "its grace"
		if s := is.DeletionGracePeriodSeconds; s != nil {
			grace = (time.Duration(*s) * time.Second).String()
		}
		lines = append(lines, "stopping within "+grace)
	}
	return lines
}

func label(c pod.Container) string { return c.Kind.String() + " " + c.Name }

func because(why, message string) string {
	switch {
	case why == "" && message == "":
		return ""
	case message == "":
		return ": " + why
	case why == "":
		return ": " + message
	}
	return ": " + why + ": " + message
}

// containerProgress returns a line for the change of one container, or "". It leaves out the short waits
// that are a part of every start.
func containerProgress(was, is corev1.ContainerStatus) string {
	same := is.ContainerID == was.ContainerID
	switch {
	case is.State.Waiting != nil:
		w := is.State.Waiting
		if w.Reason == "" || w.Reason == reason.PodInitializing || w.Reason == reason.ContainerCreating {
			return ""
		}
		if was.State.Waiting != nil && was.State.Waiting.Reason == w.Reason {
			return ""
		}
		return "waits" + because(w.Reason, w.Message)
	case same && was.State.Running != nil && is.State.Running != nil, same && was.State.Terminated != nil:
		return ""
	case is.State.Running != nil && is.RestartCount > 0:
		return fmt.Sprintf("started again (restart %d)", is.RestartCount)
	case is.State.Running != nil:
		return "started"
	case is.State.Terminated != nil:
		t := is.State.Terminated
		line := fmt.Sprintf("ended with exit code %d", t.ExitCode)
		if t.Reason != "" && t.Reason != "Completed" && t.Reason != "Error" {
			line += because(t.Reason, t.Message)
		}
		return line
	}
	return ""
}

// conditionProgress returns the message of a condition that has become false, or false for another reason.
func conditionProgress(was, is *corev1.Pod, kind corev1.PodConditionType) string {
	now := condition(is, kind)
	before := condition(was, kind)
	if now.Status != corev1.ConditionFalse || now.Reason == before.Reason && now.Message == before.Message {
		return ""
	}
	return strings.TrimPrefix(because(now.Reason, now.Message), ": ")
}

func conditionMessage(p *corev1.Pod, kind corev1.PodConditionType) string {
	c := condition(p, kind)
	if c.Message != "" {
		return c.Message
	}
	return c.Reason
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func ready(p *corev1.Pod) bool {
	return condition(p, corev1.PodReady).Status == corev1.ConditionTrue
}

// ended reports whether the pod's phase is final.
func ended(p *corev1.Pod) bool { return pod.Ended(p.Status.Phase) }

// unready returns the pod's name and what it waits for. It is a part of the timeout message.
func unready(p *corev1.Pod) string {
	var waits []string
	for _, c := range pod.Containers(p) {
		if st := containers.Status(p, c.Name); st.State.Waiting != nil && st.State.Waiting.Reason != "" {
			waits = append(waits, c.Name+because(st.State.Waiting.Reason, st.State.Waiting.Message))
		}
	}
	if len(waits) == 0 {
		if message := conditionMessage(p, corev1.PodReady); message != "" {
			waits = append(waits, message)
		}
	}
	if len(waits) == 0 {
		return pod.FullName(p)
	}
	return pod.FullName(p) + " (" + strings.Join(waits, "; ") + ")"
}

// exitStatus returns the exit status for pods that have ended. It is 0 if every container exited with 0,
// the exit code of the failed container if exactly one failed, and 1 otherwise. Sidecars and ephemeral
// containers do not count, as in a pod's phase.
func exitStatus(pods []*corev1.Pod) int {
	clean := len(pods) > 0
	var failures []int
	for _, p := range pods {
		codes, complete := exitCodes(p)
		clean = clean && (p.Status.Phase == corev1.PodSucceeded || complete && p.Status.Phase != corev1.PodFailed)
		failures = append(failures, slices.DeleteFunc(codes, func(code int) bool { return code == 0 })...)
	}
	switch {
	case len(failures) == 1:
		return max(failures[0]&0xff, 1)
	case len(failures) == 0 && clean:
		return 0
	}
	return 1
}

// exitCodes returns the exit codes of app and init containers. complete is false if one of them has none:
// it never ran, or its end was not observed.
func exitCodes(p *corev1.Pod) (codes []int, complete bool) {
	complete = true
	for _, c := range pod.Containers(p) {
		if c.Kind != pod.App && c.Kind != pod.Init {
			continue
		}
		st := containers.Status(p, c.Name)
		switch {
		case st.State.Terminated != nil:
			codes = append(codes, int(st.State.Terminated.ExitCode))
		case st.State.Waiting != nil && st.LastTerminationState.Terminated != nil: // it was waiting for a restart
			codes = append(codes, int(st.LastTerminationState.Terminated.ExitCode))
		default:
			complete = false
		}
	}
	return codes, complete
}

// changes are the changes that let a pod become ready whose container waits for one of these reasons. Kubernetes
// retries a pull for ever. The first back-off follows a pull that failed, so its message says why.
var changes = map[string]string{
	reason.InvalidImageName:  "correct the name of the image in the manifest",
	reason.ErrImageNeverPull: "load the image with --image-archive, or change imagePullPolicy",
	reason.ImagePullBackOff:  "correct the name of the image or its registry, or load it with --image-archive",
}

// stuck returns why a pod cannot become ready without a change, and the change. why is "" for any other pod.
func stuck(p *corev1.Pod) (why, next string) {
	for _, c := range pod.Containers(p) {
		if w := containers.Status(p, c.Name).State.Waiting; w != nil && changes[w.Reason] != "" {
			return label(c) + because(w.Reason, w.Message), changes[w.Reason]
		}
	}
	return "", ""
}

// eventLine returns the progress line for an event. It is "" for an event whose content is also in the
// pod's status, and for an image that was already present. A readiness probe runs until the containers have ended, as
// the kubelet's does. It is expected to fail while the pod is ending.
func eventLine(e *corev1.Event, ending bool) string {
	switch e.Reason {
	case reason.Created, reason.Started, reason.Killing, reason.BackOff:
		return ""
	case reason.Unhealthy:
		if ending {
			return ""
		}
	}
	present := e.Reason == reason.Pulled && strings.Contains(e.Message, "already present")
	if e.Type == corev1.EventTypeNormal && e.Reason != reason.Pulling && e.Reason != reason.Pulled || present {
		return ""
	}
	line := strings.TrimPrefix(because(e.Reason, e.Message), ": ")
	if _, rest, ok := strings.Cut(e.InvolvedObject.FieldPath, "{"); ok {
		line = strings.TrimSuffix(rest, "}") + ": " + line
	}
	return line
}

package printer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/cli/terminal"
)

// statusStyle returns the style of a pod's STATUS: good if it runs or has succeeded, waiting if that may still come,
// and bad for every reason of a failure.
func statusStyle(status string) terminal.Style {
	switch status {
	case "Running":
		return terminal.Good
	case "Completed", "Succeeded":
		return terminal.Faint
	case "", "Pending", "ContainerCreating", "PodInitializing", "Terminating", "NotReady", "SchedulingGated", "Unknown",
		"Waiting":
		return terminal.Waiting
	}
	if rest, ok := strings.CutPrefix(status, "Init:"); ok && strings.Contains(rest, "/") {
		return terminal.Waiting
	}
	return terminal.Bad
}

// readyStyle returns the style of READY, such as 1/2.
func readyStyle(ready string) terminal.Style {
	if n, of, ok := strings.Cut(ready, "/"); ok && n != of {
		return terminal.Waiting
	}
	return ""
}

// eventStyle returns the style of an event's type.
func eventStyle(kind string) terminal.Style {
	if kind == corev1.EventTypeWarning {
		return terminal.Bad
	}
	return ""
}

// conditionStyle returns the style of the status of a pod's condition.
func conditionStyle(status string) terminal.Style {
	if corev1.ConditionStatus(status) == corev1.ConditionTrue {
		return terminal.Good
	}
	return terminal.Waiting
}

// nodeConditionStyle returns the style of the status of a node's condition. All but Ready should be False.
func nodeConditionStyle(kind corev1.NodeConditionType, status corev1.ConditionStatus) terminal.Style {
	good := corev1.ConditionFalse
	if kind == corev1.NodeReady {
		good = corev1.ConditionTrue
	}
	if status == good {
		return terminal.Good
	}
	return terminal.Bad
}

// stateStyle returns the style of a container's state.
func stateStyle(s corev1.ContainerState) terminal.Style {
	switch {
	case s.Running != nil:
		return terminal.Good
	case s.Terminated != nil && s.Terminated.ExitCode == 0:
		return terminal.Faint
	case s.Terminated != nil:
		return terminal.Bad
	case s.Waiting != nil:
		return statusStyle(s.Waiting.Reason)
	}
	return terminal.Waiting
}

// claimStyle returns the style of the phase of a claim or volume.
func claimStyle(phase string) terminal.Style {
	switch corev1.PersistentVolumePhase(phase) {
	case corev1.VolumeBound, corev1.VolumeAvailable:
		return terminal.Good
	case corev1.VolumeReleased:
		return terminal.Faint
	case corev1.VolumePending, "":
		return terminal.Waiting
	case corev1.VolumeFailed:
	}
	return terminal.Bad // also of a claim that has lost its volume
}

// imageStyle returns the style of an image's state: faint for an image that a prune removes.
func imageStyle(state string) terminal.Style {
	switch {
	case strings.HasPrefix(state, inUse):
		return terminal.Good
	case state == unused:
		return terminal.Faint
	}
	return ""
}

// distanceStyle returns the style of the distance from a threshold of eviction: bad if the threshold is reached.
func distanceStyle(distance string) terminal.Style {
	if distance == "0" || strings.HasPrefix(distance, "-") {
		return terminal.Bad
	}
	return terminal.Good
}

// trendStyle returns the style of the trend of a signal of eviction.
func trendStyle(trend string) terminal.Style {
	if strings.Contains(trend, reachedIn) {
		return terminal.Waiting
	}
	return ""
}

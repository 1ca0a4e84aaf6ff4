package containers

import corev1 "k8s.io/api/core/v1"

// Newest returns the restart count of the newest instance of a container that has started. ok is false if none has.
func Newest(st corev1.ContainerStatus) (instance int, ok bool) {
	last := st.LastTerminationState.Terminated
	switch {
	case st.State.Running != nil, st.State.Terminated != nil:
		return int(st.RestartCount), true
	case last == nil:
		return 0, false
	case st.ContainerID != "" && st.ContainerID != last.ContainerID:
		return max(int(st.RestartCount)-1, 0), true // the next instance is created and has not started yet
	}
	return int(st.RestartCount), true
}

package follow

import (
	"context"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/model/pod"
)

// Ephemeral waits until the state of an ephemeral container satisfies is, and returns the state. Until then
// it writes to w what the container waits for.
func Ephemeral(ctx context.Context, c *client.Client, p *corev1.Pod, name string, w io.Writer,
	is func(corev1.ContainerState) bool) (corev1.ContainerState, error) {
	reported := ""
	sel := client.Select{Namespace: p.Namespace, Name: p.Name, Fields: "metadata.uid=" + string(p.UID)}
	for change, err := range c.WatchPods(ctx, sel) {
		switch {
		case err != nil:
			return corev1.ContainerState{}, err
		case change.Synced:
			continue
		}
		now := change.Object
		at := slices.IndexFunc(now.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.Name == name
		})
		if at >= 0 && is(now.Status.EphemeralContainerStatuses[at].State) {
			return now.Status.EphemeralContainerStatuses[at].State, nil
		}
		if change.Deleted || ended(now) {
			return corev1.ContainerState{}, client.Next(
				fmt.Errorf("pod %s ended before container %q ran", pod.FullName(now), name),
				"debug a pod that runs: \"berth get pods\" lists them")
		}
		if at >= 0 {
			if s := now.Status.EphemeralContainerStatuses[at].State.Waiting; s != nil && s.Message != "" &&
				s.Message != reported {
				reported = s.Message
				fmt.Fprintf(w, "waiting: %s: %s\n", s.Reason, s.Message)
			}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return corev1.ContainerState{}, err
	}
	return corev1.ContainerState{}, client.Next(fmt.Errorf("wait for container %q: the agent closed the watch", name),
		`see "berth describe pod" for what the container does`)
}

package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ends counts ended containers, each instance once. The lock of Starts protects it.
type ends struct {
	total *prometheus.CounterVec
	began time.Time // containers that ended before belong to another agent
	known map[types.UID]map[string]string
}

func newEnds(now time.Time) ends {
	return ends{
		began: now, known: map[types.UID]map[string]string{},
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_terminated_containers_total",
			Help: "Cumulative number of containers that have ended, by type, exit code and reason.",
		}, []string{"container_type", "exit_code", "reason"}),
	}
}

// status counts the ended containers in the newest status of a pod.
func (e ends) status(uid types.UID, s corev1.PodStatus) {
	known := e.known[uid]
	if known == nil {
		known = map[string]string{}
		e.known[uid] = known
	}
	for kind, all := range map[string][]corev1.ContainerStatus{
		"init_container": s.InitContainerStatuses, "container": s.ContainerStatuses,
		"ephemeral_container": s.EphemeralContainerStatuses,
	} {
		for _, c := range all {
			t := c.State.Terminated
			if t == nil {
				t = c.LastTerminationState.Terminated
			}
			if t == nil || known[c.Name] == t.ContainerID {
				continue
			}
			known[c.Name] = t.ContainerID
			if !t.FinishedAt.Time.Before(e.began.Truncate(time.Second)) { // statuses have whole seconds
				e.total.WithLabelValues(kind, strconv.Itoa(int(t.ExitCode)), t.Reason).Inc()
			}
		}
	}
}

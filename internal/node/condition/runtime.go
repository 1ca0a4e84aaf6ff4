package condition

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SetRuntimeStatus sets the kinds Runtime and Network from a status response of the container runtime. There is no call
// for a runtime that does not answer: it counts as down after RuntimeSilence.
func (t *Table) SetRuntimeStatus(r *runtimeapi.StatusResponse) {
	runtime, network := read(r)
	t.set(map[Kind]string{Runtime: runtime, Network: network})
}

// read returns the problems that a status response reports.
func read(r *runtimeapi.StatusResponse) (runtime, network string) {
	problem := func(name, what string) string {
		for _, c := range r.GetStatus().GetConditions() {
			if c.GetType() != name {
				continue
			}
			if c.GetStatus() {
				return ""
			}
			return fmt.Sprintf("%s: %s=%t reason:%s message:%s", what, name, c.GetStatus(), c.GetReason(),
				c.GetMessage())
		}
		return what + ": the runtime has no condition " + name
	}
	return problem(runtimeapi.RuntimeReady, "container runtime not ready"),
		problem(runtimeapi.NetworkReady, "container runtime network not ready")
}

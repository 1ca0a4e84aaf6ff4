package power

import (
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
)

// refuse returns the verdict on a new pod while the machine shuts down, and false for no verdict. err is the reason for
// the refusal, nil if there is no shutdown. A pod that runs was admitted by an earlier agent, and the shutdown ends it
// in its turn. A pod of the API server fails for good, so that its owner makes another on a different node. Other pods
// have no such owner: they wait, and start if the shutdown is cancelled.
func refuse(p *pod.Pod, runs bool, err error) (fleet.Verdict, bool) {
	if err == nil || runs {
		return fleet.Verdict{}, false
	}
	return fleet.Verdict{Reject: p.Source == pod.SourceAPI, Reason: reason.NodeShutdown, Message: reason.Message(err)},
		true
}

package power

import (
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
)

// refuse is the verdict on a pod while the machine goes down; false: there is none.
// One that runs was admitted by an earlier agent: it ends in its turn. A pod of the
// API has failed for good, so that its owner makes another elsewhere; others wait,
// since nobody does that for them, and come up if the shutdown is called off.
func refuse(p *pod.Pod, runs bool, err error) (fleet.Verdict, bool) {
	if err == nil || runs {
		return fleet.Verdict{}, false
	}
	return fleet.Verdict{Reject: p.Source == pod.SourceAPI, Reason: reason.NodeShutdown, Message: reason.Message(err)},
		true
}

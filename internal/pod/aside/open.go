package aside

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/crash"
	"github.com/berth-run/berth/internal/record/event"
)

// AgentPanicked is the reason of the event that reports the panic of the previous agent.
const AgentPanicked = "AgentPanicked"

// Open reports the panic of the agent before this one, and sets aside the pods that several earlier agents were working
// on when they panicked. From then on the text of a panic of this agent is kept in dir. An agent that cannot keep it
// runs without. node is the name of this node.
func (r *Register) Open(dir, node string) {
	reports, fresh, err := crash.Open(dir)
	if err != nil {
		r.opts.Log.Error("cannot keep all reports of panics, continuing", "err", err)
	}
	if fresh != nil {
		r.announce(*fresh, node)
	}
	r.Load(reports)
}

// announce reports the panic of the previous agent, on the node and on the pod that the agent worked on.
func (r *Register) announce(fresh crash.Report, node string) {
	r.opts.Log.Error("the previous agent ended with a panic", "at", fresh.Time, "panic", fresh.Cause, "subject",
		fresh.Subject, "report", fresh.File)
	r.opts.Events.Event(event.NodeRef(node), corev1.EventTypeWarning, AgentPanicked,
		"the previous agent ended with a panic at %s: %s; its stack is in %s",
		fresh.Time.UTC().Format(time.RFC3339), fresh.Cause, fresh.File)
	if s, ok := pod.ParseSubject(fresh.Subject); ok {
		r.opts.Events.Event(s.Ref(), corev1.EventTypeWarning, AgentPanicked,
			"the previous agent ended with a panic while it worked on this pod: %s; its stack is in %s",
			fresh.Cause, fresh.File)
	}
}

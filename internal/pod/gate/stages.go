package gate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// bookingRetry is the delay before admission runs again for a pod whose allocation could not be written to disk.
const bookingRetry = 5 * time.Second

// blockedRetry is the delay before admission runs again for a blocked pod. After a change of the runtime's features it
// runs at once. But nothing notifies the agent of a change in the kernel that unblocks the pod.
const blockedRetry = 5 * time.Second

// Stage is one stage of a pod's admission.
type Stage struct {
	Name string
	// Does says in a sentence what the stage does.
	Does string
	// Decides means that the stage may give the answer. Such stages are skipped once one of them has given it.
	Decides bool
	run     func(*question)
}

// question is one pod on its way through the stages.
type question struct {
	pod    *pod.Pod
	others []fleet.Other
	// answer is the answer of the rules, and verdict is the answer for the fleet. They are valid once decided is true.
	answer  admission.Answer
	verdict fleet.Verdict
	decided bool
	// silent means that an earlier agent has reported this verdict, or that there is nothing to report.
	silent bool
}

func (q *question) decide(v fleet.Verdict) { q.verdict, q.decided = v, true }

// Stages lists the stages of a pod's admission, top to bottom. The first stage that decides gives the answer; the
// stages that do not decide run for every pod.
func (g *Gate) Stages() []Stage {
	return []Stage{
		{Name: "running", Does: "books what running containers already hold, so that no CPU is allocated twice",
			run: func(*question) { g.Ledger.Restore() }},
		{Name: "ended", Does: "admits a pod that ended before this agent started, only to clean up after it",
			Decides: true, run: g.ended},
		{Name: "evicted", Does: "admits a pod that an earlier agent was evicting, only to complete that",
			Decides: true, run: g.evicted},
		{Name: "shutdown", Does: "refuses pods while the machine shuts down",
			Decides: true, run: g.shutdown},
		{Name: "rules", Does: "asks the rules of docs/admission.md, in their order",
			Decides: true, run: g.rules},
		{Name: "repeated", Does: "keeps a rejection silent that an earlier agent has reported",
			run: g.repeated},
		{Name: "labels", Does: "asks the API server for the Node's labels before they speak against a pod",
			run: g.labels},
		{Name: "preempt", Does: "ends the pods that have to make room for a critical one",
			run: g.preempt},
		{Name: "ledger", Does: "writes down the CPUs, memory and devices that the pod gets, or frees them",
			run: g.ledger},
		{Name: "resources", Does: "writes down the resources that the node allocated to an admitted pod",
			run: g.resources},
		{Name: "report", Does: "records the answer in the pod's timeline, in an event and in the metrics",
			run: g.report},
	}
}

// Admit implements fleet.Admission. No device is exchanged for another meanwhile, so that a device that the rules found
// free is still free when the ledger books it.
func (g *Gate) Admit(p *pod.Pod, others []fleet.Other) fleet.Verdict {
	q := &question{pod: p, others: others}
	g.Devices.WithoutExchanges(func() {
		for _, s := range g.stages {
			if !s.Decides || !q.decided {
				s.run(q)
			}
		}
	})
	return q.verdict
}

func (g *Gate) ended(q *question) {
	if pod.Ended(g.Statuses.Kept(q.pod.UID).Phase) {
		q.silent = true
		q.decide(fleet.Verdict{Admit: true, Ended: true})
	}
}

func (g *Gate) evicted(q *question) {
	if stop := g.Evictions.Evicting(q.pod.UID); stop != nil {
		q.silent = true
		q.decide(fleet.Verdict{Admit: true, Stop: stop})
	}
}

func (g *Gate) shutdown(q *question) {
	if v, refused := g.Shutdown.Refuses(q.pod); refused {
		q.decide(v)
	}
}

func (g *Gate) rules(q *question) {
	in := g.input(q.pod, q.others)
	in.Running = g.observed(q.pod.UID).Running()
	q.answer, _ = admission.Admit(in)
	v := verdict(q.answer)
	if v.Blocked {
		v.Again = g.Now().Add(blockedRetry)
	}
	q.decide(v)
}

func (g *Gate) repeated(q *question) {
	v := q.verdict
	refusal := podstatus.Refusal{Reason: v.Reason, Message: v.Message, Final: v.Reject}
	q.silent = q.silent || podstatus.WasRefused(g.Statuses.Last(q.pod.UID), refusal)
}

func (g *Gate) labels(q *question) {
	if v := q.verdict; !v.Admit && !v.Reject && v.Reason == admission.NodeAffinity {
		g.Labels.Confirm()
	}
}

func (g *Gate) preempt(q *question) {
	if q.silent {
		return
	}
	for _, uid := range q.answer.Preempt {
		g.Counts.preempted(q.answer.Reason)
		g.Pods.Preempt(uid)
	}
}

// ledger writes an admission to disk before the pod starts. If that fails, the pod waits, and admission runs again.
func (g *Gate) ledger(q *question) {
	v, p := q.verdict, q.pod
	if !v.Reserve {
		g.Ledger.Drop(p.UID)
	}
	if v.Reject {
		g.Ledger.Refused(v.Reason, v.Message)
	}
	switch {
	case v.Reserve:
		g.Ledger.Reserve(p.Pod, staying(q.others, q.answer.Preempt))
	case v.Admit && !v.Ended:
		beside := make([]types.UID, len(q.others))
		for i, o := range q.others {
			beside[i] = o.Pod.UID
		}
		if err := g.Ledger.Book(p.Pod, beside); err != nil {
			g.Log.Error("cannot write down what a pod was allocated, it waits", "pod", pod.FullName(p.Pod), "err", err,
				"retry", bookingRetry)
			q.verdict = fleet.Verdict{Reason: admission.UnexpectedAdmissionError, Message: reason.Message(err),
				Again: g.Now().Add(bookingRetry)}
		}
	case v.Ended, v.Reject && !g.observed(p.UID).Running():
		g.Ledger.Forget(p.UID)
	}
}

func (g *Gate) resources(q *question) {
	if q.verdict.Admit {
		g.Resources.Admitted(q.pod)
	}
}

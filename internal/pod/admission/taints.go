package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/eviction"
)

// checkTaints rejects pods that do not tolerate a NoExecute taint. As in the kubelet, the other effects are for the
// scheduler only, and static pods run in any case.
func checkTaints(in In) Answer {
	if pod.Static(in.Pod) || in.Config.NodeUnknown {
		return Answer{}
	}
	for _, t := range in.Config.Taints {
		if t.Effect == corev1.TaintEffectNoExecute && !tolerates(in.Pod, t) {
			return reject(TaintToleration,
				"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate (%s)", t.ToString())
		}
	}
	return Answer{}
}

// checkPressure keeps pods away that would be evicted next. The control plane gives a rejected pod to another node. A
// pod of a standalone node has no other node, so it waits.
func checkPressure(in In) Answer {
	taint := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
	message, ok := eviction.Admits(in.Pressure, pod.QOS(in.Pod), in.critical(in.Pod), tolerates(in.Pod, taint))
	switch {
	case ok || in.Running:
		return Answer{}
	case in.Config.Standalone:
		return Answer{Verdict: NotYet, Reason: NodePressure, Message: eviction.Awaited(in.Pressure)}
	}
	return reject(reason.Evicted, "%s", message)
}

func tolerates(p *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		switch {
		case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
			return false
		case t.Operator == corev1.TolerationOpExists:
			return true
		}
		return (t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Value == taint.Value
	})
}

package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source"
)

// ManifestsMissing is the condition of a node whose manifest directory disappeared while its pods run.
const ManifestsMissing corev1.NodeConditionType = "ManifestsMissing"

// Node shows the state of the agent itself. It implements nodeinfo.Node.
type Node struct {
	Name, Root string
	Began      time.Time
	Engine     *engine.Engine
	Monitor    *cri.Monitor
	Problems   *store.Table[source.ProblemKey, source.Problem]
	Fleet      *fleet.Fleet
	Conditions *condition.Table
	Evictions  Evictions
}

// Status implements nodeinfo.Node.
func (x Node) Status(context.Context) api.Status {
	now := time.Now()
	health := x.Monitor.Health()
	version := cmp.Or(health.Version, x.Engine.Version)
	s := api.Status{
		TypeMeta: api.Type("Status"), Node: x.Name, Root: x.Root, PID: os.Getpid(),
		StartedAt: metav1.NewTime(x.Began),
		Version:   api.BuildVersion(),
		Runtime: api.Runtime{Name: version.RuntimeName, Version: version.RuntimeVersion,
			Endpoint: x.Engine.Endpoint(), CgroupDriver: string(x.Engine.Driver),
			Handlers: nodeobject.RuntimeOf(nil, &runtimeapi.StatusResponse{
				RuntimeHandlers: x.Engine.HandlerFeatures(),
			}).Handlers, HandlerPrograms: x.handlerPrograms()},
	}
	runtime, network := health.Runtime(now), health.Network(now)
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady",
		Message: "the agent can run pods"}
	switch {
	case !runtime.Ready:
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, runtime.Reason, runtime.Message
	case !network.Ready:
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, network.Reason, network.Message
	}
	s.Conditions = []corev1.NodeCondition{ready, {Type: ManifestsMissing, Status: corev1.ConditionFalse,
		Reason: "ManifestsRead", Message: "no manifests disappeared"}}
	s.Conditions = append(s.Conditions, x.Conditions.Pressures()...)
	for _, p := range x.Problems.Snapshot().All() {
		if _, missing := errors.AsType[*source.MissingError](p.Err); missing {
			s.Conditions[1] = corev1.NodeCondition{Type: ManifestsMissing, Status: corev1.ConditionTrue,
				Reason: reason.ManifestsMissing, Message: p.Err.Error(), LastTransitionTime: metav1.NewTime(p.Since)}
			continue
		}
		s.Problems = append(s.Problems,
			api.Problem{Origin: p.Origin, Message: p.Err.Error(), Since: metav1.NewTime(p.Since)})
	}
	slices.SortFunc(s.Problems, func(p, q api.Problem) int { return p.Since.Compare(q.Since.Time) })
	return s
}

// handlerPrograms returns the program of each runtime handler, with its cgroup driver and options.
func (x Node) handlerPrograms() (all []api.HandlerProgram) {
	for _, d := range x.Engine.HandlerPrograms {
		all = append(all, api.HandlerProgram(d))
	}
	return all
}

// Hanging implements nodeinfo.Node.
func (x Node) Hanging() (all []string) {
	for _, h := range x.Fleet.Hangs() {
		all = append(all, fmt.Sprintf("the worker of pod %s hangs in %s since %s", pod.FullName(h.Pod.Pod), h.What,
			h.Since.UTC().Format(time.RFC3339)))
	}
	return all
}

// Healthy implements nodeinfo.Node. It returns an error if the loop that admits and ends pods does not answer. It
// ignores a runtime that is down, since restarting the agent would not help.
func (x Node) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := x.Fleet.Ping(ctx); err != nil {
		return fmt.Errorf("the fleet's loop does not answer: %w", err)
	}
	return nil
}

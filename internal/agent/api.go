package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent/explain"
	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/files"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/api/stream"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/source/manifest"
	"github.com/berth-run/berth/internal/record/event"
)

func (a *Agent) serverOptions() server.Options {
	return server.Options{
		Socket: a.config.Socket, Pods: a.statuses.Pods(), Settled: a.fleet.Settled(), Events: a.events, Applier: applier{a},
		Explainer: applier{a}, Objects: objectStore{a}, Amender: amender{a}, Timelines: a.timeline,
		Images: images{a}, Streams: streamsOf(a),
		Files: files.Files{CRI: a.engine.Client, Runtime: a.engine.Name(), ID: stream.ContainerID},
		Node:  nodeState{a}, Resources: a.steps.allocations, Metrics: a.metrics,
		LogDir: a.config.Pods.LogsDir, Started: a.began, Log: a.log,
	}
}

// problems tells of manifests that were not taken.
type problems struct{ events *event.Recorder }

// SourceProblem records an event on the object, if the manifest told which.
func (p problems) SourceProblem(problem source.Problem) {
	ref := corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: problem.Pod.Namespace,
		Name: problem.Pod.Name}
	if kind, ok := object.KindNamed(problem.Object.Kind); ok {
		ref = corev1.ObjectReference{Kind: kind.Name, APIVersion: kind.APIVersion, Namespace: problem.Object.Namespace,
			Name: problem.Object.Name}
	}
	if ref.Name == "" {
		return
	}
	p.events.Event(ref, corev1.EventTypeWarning, reason.FailedValidation, "%s: %v", problem.Origin, problem.Err)
}

// applier is how the local API changes what pods are wanted.
type applier struct{ a *Agent }

// Apply implements server.Applier.
func (x applier) Apply(ctx context.Context, data []byte, o server.ApplyOptions) ([]api.ApplyResult, error) {
	objects, err := manifest.Decode(data, o.Origin)
	if err != nil {
		return nil, answer.BadRequest(err.Error(), "correct the manifest; nothing was changed")
	}
	for _, m := range objects {
		if err := place(m, o.Namespace); err != nil {
			return nil, err
		}
		if o.CreateOnly && m.Pod != nil {
			key := types.NamespacedName{Namespace: m.Pod.Namespace, Name: m.Pod.Name}
			if _, there := x.a.statuses.Pods().Get(key); there {
				return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, key.String())
			}
		}
	}
	if o.NamesOnly {
		return named(objects), nil
	}
	local := x.a.sources.Local
	take := local.Apply
	switch {
	case o.DryRun:
		take = local.Check
	case !o.Keep:
		take = local.Run
	}
	applied, err := take(ctx, objects...)
	if err != nil {
		return nil, applyError(err)
	}
	results := make([]api.ApplyResult, len(applied))
	for i, p := range applied {
		if p.Object != nil {
			results[i] = api.ApplyResult{Kind: object.KeyOf(p.Object).Kind, Namespace: p.Object.GetNamespace(),
				Name: p.Object.GetName(), UID: p.Object.GetUID(), Action: actions[p.Result]}
			continue
		}
		results[i] = api.ApplyResult{Kind: api.KindPod, Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID,
			Action: actions[p.Result]}
	}
	return results, nil
}

// Explain implements server.Explainer.
func (x applier) Explain(_ context.Context, data []byte, o server.ApplyOptions) ([]api.Explanation, error) {
	objects, err := manifest.Decode(data, o.Origin)
	if err != nil {
		return nil, answer.BadRequest(err.Error(), "correct the manifest")
	}
	for _, m := range objects {
		if err := place(m, o.Namespace); err != nil {
			return nil, err
		}
	}
	explainer := explain.Explainer{Node: x.a.config.NodeName, Input: x.a.admissionInput, Others: func() []fleet.Other {
		return slices.Concat(x.a.fleet.Holders(), x.a.fleet.Reserved())
	}}
	return explainer.Explain(objects), nil
}

// place puts an object that names no namespace into that one; "" leaves it.
func place(m manifest.Object, namespace string) error {
	var meta metav1.Object = m.Value
	if m.Pod != nil {
		meta = m.Pod
	}
	kind, known := object.KindNamed(m.Key().Kind)
	switch given := meta.GetNamespace(); {
	case namespace == "" || given == namespace || known && !kind.Namespaced:
	case given == "":
		meta.SetNamespace(namespace)
	default:
		return answer.BadRequest(fmt.Sprintf("%s %s/%s is not of namespace %s", strings.ToLower(m.Key().Kind), given,
			meta.GetName(), namespace), "drop the flag or the field")
	}
	return nil
}

// named are the names of what manifests hold.
func named(objects []manifest.Object) []api.ApplyResult {
	results := make([]api.ApplyResult, len(objects))
	for i, m := range objects {
		key := m.Key()
		results[i] = api.ApplyResult{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Action: api.Unchanged}
	}
	return results
}

var actions = map[source.Result]api.Action{
	source.Created: api.Created, source.Unchanged: api.Unchanged, source.Configured: api.Configured,
	source.Replaced: api.Configured,
}

// applyError gives what a source refused its place in the API's errors.
func applyError(err error) error {
	switch {
	case errors.Is(err, source.ErrTaken):
		return answer.Next(&apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Message: err.Error()}}, "nothing was changed")
	case reason.Of(err) == reason.FailedValidation:
		return answer.BadRequest(err.Error(), "correct the manifest; nothing was changed")
	}
	return err
}

// Delete implements server.Applier.
func (x applier) Delete(ctx context.Context, key types.NamespacedName, o server.DeleteOptions) (*corev1.Pod, error) {
	row, ok := x.a.statuses.Pods().Get(key)
	if !ok {
		return nil, answer.NotFound(key)
	}
	if o.UID != "" && o.UID != row.UID {
		return nil,
			apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, key.String(),
				fmt.Errorf("its UID is %s, not %s", row.UID, o.UID))
	}
	if row.DeletionTimestamp == nil {
		// The manifest goes first: a pod that ends while it is wanted comes back.
		_, err := x.a.sources.Local.Delete(ctx, key)
		switch {
		case errors.Is(err, source.ErrTaken):
			return nil, answer.BadRequest(err.Error(), "remove its manifest there")
		case err != nil && !errors.Is(err, source.ErrNotFound):
			return nil, err
		}
	}
	x.a.fleet.Stop(row.UID,
		pod.Stop{Reason: pod.StopDeleted, Message: "deleted over the API", Grace: o.Grace, Remove: true, At: time.Now()})
	if now, ok := x.a.statuses.Pods().Get(key); ok && now.UID == row.UID {
		return now, nil
	}
	return row, nil
}

// nodeState is what the local API tells of the agent itself.
type nodeState struct{ a *Agent }

// Status implements server.Node.
func (x nodeState) Status(context.Context) api.Status {
	a, now := x.a, time.Now()
	health := a.monitor.Health()
	version := cmp.Or(health.Version, a.engine.Version)
	s := api.Status{
		TypeMeta: api.Type("Status"), Node: a.config.NodeName, Root: a.config.RootDir, PID: os.Getpid(),
		StartedAt: metav1.NewTime(a.began),
		Version:   api.BuildVersion(),
		Runtime: api.Runtime{Name: version.RuntimeName, Version: version.RuntimeVersion,
			Endpoint: a.engine.Endpoint()},
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
	s.Conditions = []corev1.NodeCondition{ready}
	for _, p := range a.sources.Problems.Snapshot().All() {
		s.Problems = append(s.Problems,
			api.Problem{Origin: p.Origin, Message: p.Err.Error(), Since: metav1.NewTime(p.Since)})
	}
	slices.SortFunc(s.Problems, func(p, q api.Problem) int { return p.Since.Compare(q.Since.Time) })
	return s
}

// Healthy implements server.Node: the loop that admits and ends pods answers. A
// runtime that is down is the agent's business to survive, no reason to restart
// it.
func (x nodeState) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := x.a.fleet.Ping(ctx); err != nil {
		return fmt.Errorf("the fleet's loop does not answer: %w", err)
	}
	return nil
}

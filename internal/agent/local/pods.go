package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/source/manifest"
	"github.com/berth-run/berth/internal/pod/status"
)

// Pods changes which pods are wanted, and amends pods that run. It implements server.Applier, server.Explainer and
// server.Amender.
type Pods struct {
	Node     string
	Statuses *status.Statuses
	Sources  *source.Sources
	Fleet    *fleet.Fleet
	// Explainer returns the answer of admission for the pods of a manifest.
	Explainer explain.Explainer
}

// Apply implements server.Applier.
func (x Pods) Apply(ctx context.Context, data []byte, o server.ApplyOptions) ([]api.ApplyResult, error) {
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
			if _, there := x.Statuses.Pods().Get(key); there {
				return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, key.String())
			}
		}
	}
	if o.NamesOnly {
		return named(objects), nil
	}
	local := x.Sources.Local
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
func (x Pods) Explain(_ context.Context, data []byte, o server.ApplyOptions) ([]api.Explanation, error) {
	objects, err := manifest.Decode(data, o.Origin)
	if err != nil {
		return nil, answer.BadRequest(err.Error(), "correct the manifest")
	}
	for _, m := range objects {
		if err := place(m, o.Namespace); err != nil {
			return nil, err
		}
	}
	return x.Explainer.Explain(objects), nil
}

// place puts an object without a namespace into the given one. It returns an error for an object of another namespace.
// "" changes nothing.
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

// named lists the objects in manifests without applying them.
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

// applyError turns an error of a source into an error of the API.
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

// known returns a pod as it was published, or as it was applied if an agent that has just started has not published it
// yet.
func (x Pods) known(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	if row, ok := x.Statuses.Pods().Get(key); ok {
		return row, nil
	}
	p, err := x.Sources.Local.Pod(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return nil, answer.NotFound(key)
	}
	return p.Pod, nil
}

// Delete implements server.Applier. While a pod that was replaced ends, its name also stands for the applied pod, which
// waits for that.
func (x Pods) Delete(ctx context.Context, key types.NamespacedName, o server.DeleteOptions) (*corev1.Pod, error) {
	row, err := x.known(ctx, key)
	if err != nil {
		return nil, err
	}
	applied, err := x.Sources.Local.Pod(ctx, key)
	if err != nil {
		return nil, err
	}
	if applied != nil && o.UID == applied.UID {
		row = applied.Pod
	}
	if o.UID != "" && o.UID != row.UID {
		return nil,
			apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, key.String(),
				fmt.Errorf("its UID is %s, not %s", row.UID, o.UID))
	}
	unwanted := row.DeletionTimestamp == nil
	if applied != nil {
		unwanted = o.UID == "" || o.UID == applied.UID
	}
	if unwanted {
		// The manifest goes first: a pod that ends while its manifest exists comes back.
		_, err := x.Sources.Local.Delete(ctx, key)
		switch {
		case errors.Is(err, source.ErrTaken):
			return nil, answer.BadRequest(err.Error(), "remove its manifest there")
		case err != nil && !errors.Is(err, source.ErrNotFound):
			return nil, err
		}
	}
	x.Fleet.Stop(row.UID,
		pod.Stop{Reason: pod.StopDeleted, Message: "deleted over the API", Grace: o.Grace, Remove: true,
			At: time.Now()})
	if now, ok := x.Statuses.Pods().Get(key); ok && now.UID == row.UID {
		return now, nil
	}
	return row, nil
}

package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
)

// Applier changes the desired pods.
type Applier interface {
	// Apply applies manifests of pods and of the objects they name, in JSON or YAML. If one of them is
	// answer.Invalid, it changes nothing. Results are in the order of the manifests.
	Apply(ctx context.Context, data []byte, opts ApplyOptions) ([]api.ApplyResult, error)
	// Delete requests the deletion of a pod and returns the pod as it is then. It does not wait for the pod to end.
	Delete(ctx context.Context, key types.NamespacedName, opts DeleteOptions) (*corev1.Pod, error)
}

// ApplyOptions configure an apply.
type ApplyOptions struct {
	// Origin names the manifests in messages.
	Origin string
	// Namespace is used for pods without a namespace. If it is set, a pod with another namespace is an
	// error. If it is empty, "default" is used.
	Namespace string
	// Keep stores the pods, so that they survive a restart of the agent and a reboot.
	Keep bool
	// CreateOnly turns an existing pod of the same name into an AlreadyExists error.
	CreateOnly bool
	// DryRun checks everything and changes nothing.
	DryRun bool
	// NamesOnly returns the objects that the manifests name. It neither validates nor applies them.
	NamesOnly bool
}

// DeleteOptions configure a deletion.
type DeleteOptions struct {
	// UID, if set, must match the pod's. Otherwise the deletion fails with a conflict.
	UID types.UID
	// Grace is how long the containers may take to end. nil is the pod's own grace period.
	Grace *time.Duration
}

// Explainer reports what admission would decide about pods, without admitting them.
type Explainer interface {
	// Explain returns the result for each pod of the manifests (JSON or YAML), in their order. Each result
	// assumes that only this pod is applied now. The error is for manifests that cannot be read at all. It
	// uses only the options Origin and Namespace.
	Explain(ctx context.Context, data []byte, opts ApplyOptions) ([]api.Explanation, error)
}

// changeRoutes applies and deletes pods, and explains what an apply would do.
type changeRoutes struct {
	podTable
	applier   Applier
	explainer Explainer
	leases    *leases
}

func (s changeRoutes) apply(w http.ResponseWriter, r *http.Request) error {
	opts, lease, err := applyOptions(r)
	if err != nil {
		return err
	}
	data, err := readManifests(w, r, opts.Origin)
	if err != nil {
		return err
	}
	results, err := s.leases.apply(r, lease, data, opts)
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, api.ApplyResultList{TypeMeta: api.Type("ApplyResultList"), Items: results})
	return nil
}

func readManifests(w http.ResponseWriter, r *http.Request, origin string) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, api.MaxManifest))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil,
			answer.Next(answer.Failure(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
				fmt.Sprintf("%s: manifests are limited to %d MiB", origin, api.MaxManifest>>20)),
				"apply fewer at a time")
	}
	if err != nil {
		return nil, answer.BadRequest(fmt.Sprintf("read manifests: %v", err), "send the manifests again")
	}
	return data, nil
}

func applyOptions(r *http.Request) (opts ApplyOptions, lease string, err error) {
	q := query.Of(r)
	lease = q.Get(api.ParamLease)
	opts = ApplyOptions{
		Origin:     cmp.Or(q.Get(api.ParamOrigin), "request"),
		Namespace:  q.Get(api.ParamNamespace),
		Keep:       q.Flag(api.ParamKeep, lease == ""),
		CreateOnly: lease != "",
		NamesOnly:  q.Flag(api.ParamNames, false),
	}
	switch q.Get("dryRun") {
	case "":
	case metav1.DryRunAll:
		opts.DryRun = true
	default:
		q.Bad(answer.BadRequest, "dryRun", metav1.DryRunAll)
	}
	if q.Err == nil && lease != "" && opts.Keep {
		q.Err = answer.BadRequest("a pod cannot be kept and bound to a lease at once", "leave out keep or lease")
	}
	return opts, lease, q.Err
}

func (s changeRoutes) remove(w http.ResponseWriter, r *http.Request) error {
	opts, err := deleteOptions(r)
	if err != nil {
		return err
	}
	p, err := s.applier.Delete(r.Context(), key(r), opts)
	if apierrors.IsConflict(err) {
		err = answer.Next(err, `another pod has this name now: look at it with "berth get pods", and delete it by name`)
	}
	return s.answer(w, p, err)
}

// deleteOptions reads the body (metav1.DeleteOptions, may be empty) and the query, which takes precedence.
// It ignores a propagation policy, because dependents are the cluster's concern.
func deleteOptions(r *http.Request) (DeleteOptions, error) {
	var body metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		return DeleteOptions{}, answer.BadRequest(fmt.Sprintf("read DeleteOptions: %v", err),
			"send DeleteOptions of meta/v1 as JSON, or no body")
	}
	if len(body.DryRun) > 0 {
		return DeleteOptions{}, answer.BadRequest("dryRun is not supported for a deletion",
			"leave it out, or read the pod with GET instead")
	}
	q := query.Of(r)
	seconds := cmp.Or(q.Number("gracePeriodSeconds", 0), body.GracePeriodSeconds)
	var opts DeleteOptions
	if seconds != nil {
		grace := time.Duration(*seconds) * time.Second
		opts.Grace = &grace
	}
	if opts.Grace != nil && *opts.Grace < 0 {
		q.Err = answer.BadRequest("gracePeriodSeconds is negative", "give 0 or more, or leave it out")
	}
	if pre := body.Preconditions; pre != nil && pre.UID != nil {
		opts.UID = *pre.UID
	}
	return opts, q.Err
}

func (s changeRoutes) explain(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	opts := ApplyOptions{Origin: cmp.Or(q.Get(api.ParamOrigin), "request"), Namespace: q.Get(api.ParamNamespace)}
	data, err := readManifests(w, r, opts.Origin)
	if err != nil {
		return err
	}
	items, err := s.explainer.Explain(r.Context(), data, opts)
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, api.ExplanationList{TypeMeta: api.Type("ExplanationList"), Items: items})
	return nil
}

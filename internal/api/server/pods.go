package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/logs"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/api/selector"
)

// version returns the resourceVersion for a revision of the table. It also grows over restarts of the
// agent, as long as there is at most one change per microsecond.
func (s *Server) version(revision uint64) string {
	return strconv.FormatUint(uint64(s.Started.UnixMicro())+revision, 10)
}

func key(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

func (s podRoutes) listPods(w http.ResponseWriter, r *http.Request) error {
	opts, err := listOptionsOf(r, selector.PodFields(&corev1.Pod{}))
	if err != nil {
		return err
	}
	if opts.watch {
		return s.watchPods(w, r, opts)
	}
	snapshot := s.Pods.Snapshot()
	version := s.version(snapshot.Revision())
	list := corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: version},
		Items:    []corev1.Pod{},
	}
	for _, p := range snapshot.All() {
		if opts.selector.Pod(p) {
			list.Items = append(list.Items, *typed(p, version))
		}
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	answer.WriteJSON(w, http.StatusOK, list)
	return nil
}

// pod returns the pod that a request names, and the revision of the table that it was read from.
func (s podRoutes) pod(r *http.Request) (*corev1.Pod, uint64, error) {
	snapshot := s.Pods.Snapshot()
	p, ok := snapshot.Get(key(r))
	if !ok {
		return nil, 0, answer.NotFound(key(r))
	}
	return p, snapshot.Revision(), nil
}

func (s podRoutes) getPod(w http.ResponseWriter, r *http.Request) error {
	p, revision, err := s.pod(r)
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, typed(p, s.version(revision)))
	return nil
}

func (s podRoutes) applyPods(w http.ResponseWriter, r *http.Request) error {
	opts, lease, err := applyOptions(r)
	if err != nil {
		return err
	}
	data, err := readManifests(w, r, opts.Origin)
	if err != nil {
		return err
	}
	results, err := s.applyUnder(r, lease, data, opts)
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
		return nil, answer.BadRequest(fmt.Sprintf("read manifests: %v", err), "")
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

func (s podRoutes) deletePod(w http.ResponseWriter, r *http.Request) error {
	opts, err := deleteOptions(r)
	if err != nil {
		return err
	}
	p, err := s.Applier.Delete(r.Context(), key(r), opts)
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, typed(p, s.version(s.Pods.Revision())))
	return nil
}

// deleteOptions reads the body (metav1.DeleteOptions, may be empty) and the query, which takes precedence.
// It ignores a propagation policy, because dependents are the cluster's concern.
func deleteOptions(r *http.Request) (DeleteOptions, error) {
	var body metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		return DeleteOptions{}, answer.BadRequest(fmt.Sprintf("read DeleteOptions: %v", err), "")
	}
	if len(body.DryRun) > 0 {
		return DeleteOptions{}, answer.BadRequest("dryRun is not supported for a deletion", "")
	}
	q := query.Of(r)
	seconds := cmp.Or(q.Number("gracePeriodSeconds", 0), body.GracePeriodSeconds)
	var opts DeleteOptions
	if seconds != nil {
		grace := time.Duration(*seconds) * time.Second
		opts.Grace = &grace
	}
	if opts.Grace != nil && *opts.Grace < 0 {
		q.Err = answer.BadRequest("gracePeriodSeconds is negative", "")
	}
	if pre := body.Preconditions; pre != nil && pre.UID != nil {
		opts.UID = *pre.UID
	}
	return opts, q.Err
}

func (s podRoutes) podLog(w http.ResponseWriter, r *http.Request) error {
	opts, n, err := logs.Options(r)
	if err != nil {
		return err
	}
	p, _, err := s.pod(r)
	if err != nil {
		return err
	}
	return logs.Logs{Pods: s.Pods, Dir: s.LogDir, Log: s.Log}.Serve(w, r,
		logs.Request{Pod: p, Options: opts, Instance: n})
}

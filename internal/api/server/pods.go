package server

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/api/logs"
	"github.com/berth-run/berth/internal/api/selector"
	"github.com/berth-run/berth/internal/model/pod"
)

// versions makes resource versions from revisions of a table. They also grow over restarts of the agent, as long as
// there is at most one change per microsecond.
type versions struct {
	started time.Time // the start of this process
}

// version returns the resourceVersion for a revision of a table.
func (v versions) version(revision uint64) string {
	return strconv.FormatUint(uint64(v.started.UnixMicro())+revision, 10)
}

// podTable reads the pods that requests name, and answers with pods.
type podTable struct {
	Pods *Pods
	versions
}

// pod returns the pod that a request names, and the revision of the table that it was read from.
func (t podTable) pod(r *http.Request) (*corev1.Pod, uint64, error) {
	snapshot := t.Pods.Snapshot()
	p, ok := snapshot.Get(key(r))
	if !ok {
		return nil, 0, answer.NotFound(key(r))
	}
	return p, snapshot.Revision(), nil
}

// running returns the pod that a request names and its running container of that name.
func (t podTable) running(r *http.Request, name string) (*corev1.Pod, pod.Container, error) {
	p, _, err := t.pod(r)
	if err != nil {
		return nil, pod.Container{}, err
	}
	c, err := containers.Running(p, name)
	return p, c, err
}

// answer writes the pod as a change has left it, or returns the change's error.
func (t podTable) answer(w http.ResponseWriter, p *corev1.Pod, err error) error {
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, typed(p, t.version(t.Pods.Revision())))
	return nil
}

func key(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// podRoutes reads pods and their logs.
type podRoutes struct {
	podTable
	logs logs.Logs
}

func (s podRoutes) list(w http.ResponseWriter, r *http.Request) error {
	opts, err := listOptionsOf(r, selector.PodFields(&corev1.Pod{}))
	if err != nil {
		return err
	}
	if opts.watch {
		return s.watch(w, r, opts)
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

func (s podRoutes) get(w http.ResponseWriter, r *http.Request) error {
	p, revision, err := s.pod(r)
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, typed(p, s.version(revision)))
	return nil
}

func (s podRoutes) log(w http.ResponseWriter, r *http.Request) error {
	opts, n, err := logs.Options(r)
	if err != nil {
		return err
	}
	p, _, err := s.pod(r)
	if err != nil {
		return err
	}
	return s.logs.Serve(w, r, logs.Request{Pod: p, Options: opts, Instance: n})
}

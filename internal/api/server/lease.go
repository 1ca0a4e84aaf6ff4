package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
)

// leases binds pods to connections. A foreground command holds one, so that its
// pods end with it however it ends; when the agent ends first, nothing is
// deleted, because its pods are not kept (ApplyOptions.Keep) and the next agent
// ends them.
type leases struct {
	mu   sync.Mutex
	held map[string]bound // by lease
}

// bound are the pods and other objects of a lease, with their UIDs.
type bound map[object.Key]types.UID

func newLeases() *leases { return &leases{held: map[string]bound{}} }

func keyOf(r api.ApplyResult) object.Key {
	return object.Key{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

func (l *leases) open() string {
	id := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[id] = bound{}
	return id
}

func (l *leases) exists(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[id] != nil
}

// close ends a lease and returns what was bound to it.
func (l *leases) close(id string) bound {
	l.mu.Lock()
	defer l.mu.Unlock()
	pods := l.held[id]
	delete(l.held, id)
	return pods
}

// bind gives what was applied to a lease, or with an empty id takes it from any.
// It is false when the lease has ended.
func (l *leases) bind(id string, applied []api.ApplyResult) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range applied {
		for _, b := range l.held {
			delete(b, keyOf(r))
		}
		if b := l.held[id]; b != nil {
			b[keyOf(r)] = r.UID
		}
	}
	return id == "" || l.held[id] != nil
}

func noLease(id string) error {
	return Next(failure(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf("lease %q is not held", id)),
		"open one with POST /berth/v1/leases and keep its connection open")
}

// applyUnder applies manifests and binds the pods to the lease, if there is one.
func (s *Server) applyUnder(r *http.Request, lease string, data []byte, opts ApplyOptions) ([]api.ApplyResult, error) {
	if lease != "" && !s.leases.exists(lease) {
		return nil, noLease(lease)
	}
	watcher := s.Pods.Watch() // from before, so that no pod comes and goes unseen
	defer watcher.Stop()
	results, err := s.Applier.Apply(r.Context(), data, opts)
	if apierrors.IsAlreadyExists(err) {
		err = Next(err, `delete it first, or change it with "berth apply"`)
	}
	if err != nil || opts.DryRun || opts.NamesOnly {
		return results, err
	}
	if !s.leases.bind(lease, results) {
		all := bound{}
		for _, result := range results {
			all[keyOf(result)] = result.UID
		}
		s.deleteAll(r.Context(), all)
		return nil, noLease(lease)
	}
	if lease != "" {
		s.awaitPods(r.Context(), watcher, results)
	}
	return results, nil
}

// showTime is how long a pod may take to be shown once it is wanted.
const showTime = 10 * time.Second

// awaitPods returns when the pods stood in the table, even if no more: whoever
// watches from now on may take a pod that is not there for one that is gone.
func (s *Server) awaitPods(ctx context.Context, w *store.Watcher[types.NamespacedName, *corev1.Pod],
	pods []api.ApplyResult) {
	ctx, cancel := context.WithTimeout(ctx, showTime)
	defer cancel()
	missing := map[types.UID]bool{}
	for _, p := range pods {
		if p.IsPod() {
			missing[p.UID] = true
		}
	}
	for len(missing) > 0 {
		changes, err := w.Next(ctx)
		if err != nil {
			s.Log.Warn("applied pods are not shown yet", "pods", len(missing), "err", err)
			return
		}
		for _, c := range changes {
			if c.Value != nil {
				delete(missing, c.Value.UID)
			}
		}
	}
}

// holdLease answers with the lease's id at once and keeps the answer open.
func (s *Server) holdLease(w http.ResponseWriter, r *http.Request) error {
	id := s.leases.open()
	writeJSON(w, http.StatusOK, api.Lease{TypeMeta: api.Type("Lease"), ID: id})
	if err := http.NewResponseController(w).Flush(); err == nil {
		<-r.Context().Done()
	}
	pods := s.leases.close(id)
	if !errors.Is(context.Cause(r.Context()), errStopping) {
		s.deleteAll(r.Context(), pods)
	}
	return nil
}

// deleteAll ends what was applied by a client that is gone.
func (s *Server) deleteAll(ctx context.Context, all bound) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for key, uid := range all {
		var err error
		if key.Kind == api.KindPod {
			_, err = s.Applier.Delete(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name},
				DeleteOptions{UID: uid})
		} else {
			err = s.Objects.Delete(ctx, key)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.Log.Error("an object stays although its lease ended", "object", key, "err", err)
		}
	}
}

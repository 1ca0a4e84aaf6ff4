package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
)

// leases binds pods to connections. A foreground command holds a lease, so that its pods end however the command ends.
// If the agent ends first, it deletes nothing: its pods are not kept (ApplyOptions.Keep), so the next agent ends them.
type leases struct {
	pods    *Pods
	applier Applier
	objects Objects
	log     *slog.Logger

	mu   sync.Mutex
	held map[string]leased // by lease id
}

// leased maps the pods and other objects of a lease to their UIDs.
type leased map[object.Key]types.UID

func newLeases(o Options) *leases {
	return &leases{pods: o.Pods, applier: o.Applier, objects: o.Objects, log: o.Log, held: map[string]leased{}}
}

func keyOf(r api.ApplyResult) object.Key {
	return object.Key{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

func (l *leases) open() string {
	id := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[id] = leased{}
	return id
}

func (l *leases) exists(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[id] != nil
}

// close ends a lease and returns the objects that were leased to it.
func (l *leases) close(id string) leased {
	l.mu.Lock()
	defer l.mu.Unlock()
	pods := l.held[id]
	delete(l.held, id)
	return pods
}

// bind moves applied objects to a lease. With an empty id it only removes them from the leases they are
// leased to. It returns false if the lease has ended.
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
	return answer.Next(answer.Failure(http.StatusConflict, metav1.StatusReasonConflict,
		fmt.Sprintf("lease %q is not held", id)),
		"open one with POST /berth/v1/leases and keep its connection open")
}

// apply applies manifests. If lease is set, it binds the objects to the lease and waits until the pods
// are in the table.
func (l *leases) apply(r *http.Request, lease string, data []byte, opts ApplyOptions) ([]api.ApplyResult, error) {
	if lease != "" && !l.exists(lease) {
		return nil, noLease(lease)
	}
	watcher := l.pods.Watch() // begin before the apply, to see pods that end at once
	defer watcher.Stop()
	results, err := l.applier.Apply(r.Context(), data, opts)
	if apierrors.IsAlreadyExists(err) {
		err = answer.Next(err, `delete it first, or change it with "berth apply"`)
	}
	if err != nil || opts.DryRun || opts.NamesOnly {
		return results, err
	}
	if !l.bind(lease, results) {
		all := leased{}
		for _, result := range results {
			all[keyOf(result)] = result.UID
		}
		l.deleteAll(r.Context(), all)
		return nil, noLease(lease)
	}
	if lease != "" {
		l.awaitPods(r.Context(), watcher, results)
	}
	return results, nil
}

// showTime is how long an applied pod may take to appear in the table.
const showTime = 10 * time.Second

// awaitPods waits until every pod has appeared in the table, even if it is gone again. A client that begins
// a watch earlier would take a missing pod for a deleted one.
func (l *leases) awaitPods(ctx context.Context, w *store.Watcher[types.NamespacedName, *corev1.Pod],
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
			l.log.Warn("applied pods have not appeared, answering without them", "pods", len(missing), "err", err)
			return
		}
		for _, c := range changes {
			if c.Value != nil {
				delete(missing, c.Value.UID)
			}
		}
	}
}

// hold answers with the lease's id and keeps the answer open until the client goes. It then deletes
// the lease's objects.
func (l *leases) hold(w http.ResponseWriter, r *http.Request) error {
	id := l.open()
	answer.WriteJSON(w, http.StatusOK, api.Lease{TypeMeta: api.Type("Lease"), ID: id})
	if err := http.NewResponseController(w).Flush(); err == nil {
		<-r.Context().Done()
	}
	pods := l.close(id)
	if !errors.Is(context.Cause(r.Context()), errStopping) {
		l.deleteAll(r.Context(), pods)
	}
	return nil
}

// deleteAll deletes the objects of a lease that has ended.
func (l *leases) deleteAll(ctx context.Context, all leased) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for key, uid := range all {
		var err error
		if key.Kind == api.KindPod {
			_, err = l.applier.Delete(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name},
				DeleteOptions{UID: uid})
		} else {
			err = l.objects.Delete(ctx, key)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			l.log.Error("cannot delete an object of an ended lease, the object stays", "object", key, "err", err)
		}
	}
}

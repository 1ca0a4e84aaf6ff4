package agent

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/steps/claim"
)

// objectStore is the agent's view of the ConfigMaps, Secrets and the like that
// pods name.
type objectStore struct{ a *Agent }

// wake has what waits for an object tried again when it comes or changes.
func (x objectStore) wake(ctx context.Context) error {
	watcher := x.a.sources.Objects.Watch()
	defer watcher.Stop()
	for {
		changes, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		keys := map[object.Key]bool{}
		for _, c := range changes {
			keys[c.Key] = true
		}
		x.a.fleet.ObjectsChanged(keys)
	}
}

// Snapshot implements server.Objects. It shows claims and volumes with what they
// are bound to.
func (x objectStore) Snapshot() store.Snapshot[object.Key, runtime.Object] {
	rows, revision := x.a.steps.claims.Rows()
	return x.a.sources.Objects.Snapshot().With(rows, revision)
}

// claims makes what binds claims to volumes.
func (x objectStore) claims() *claim.Claims {
	a := x.a
	c := claim.Config{
		Root: a.config.RootDir, Objects: a.sources.Objects, Labels: func() map[string]string {
			return member{a}.view().Labels()
		}, Synced: a.sources.LocalSynced(),
		Complete: func() bool { return a.sources.Problems.Len() == 0 },
		Node:     &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.facts.Name, Labels: a.facts.Labels}},
		Changed:  func(keys map[object.Key]bool) { a.fleet.ObjectsChanged(keys) },
		Events:   a.events, Now: time.Now, Log: a.log,
	}
	if a.cluster != nil {
		c.Cluster = a.objects
	}
	return claim.New(c)
}

// Delete implements server.Objects.
func (x objectStore) Delete(ctx context.Context, key object.Key) error {
	err := x.a.sources.Local.DeleteObject(ctx, key)
	switch {
	case errors.Is(err, source.ErrTaken):
		return answer.BadRequest(err.Error(), "remove its manifest there")
	case errors.Is(err, source.ErrNotFound):
		return answer.ObjectNotFound(key)
	}
	return err
}

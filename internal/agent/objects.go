package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/claim"
)

// wakePods retries the parts of pods that wait for an object when the object appears or changes.
func (a *Agent) wakePods(ctx context.Context) error {
	watcher := a.demand.sources.Objects.Watch()
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
		a.tables.fleet.ObjectsChanged(keys)
	}
}

// followObjects retries the parts of pods that wait for changed objects of the cluster. It updates the volumes that
// show the objects.
func (a *Agent) followObjects(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.tables.changed.C():
		}
		keys := a.tables.changed.Take()
		a.tables.fleet.ObjectsChanged(keys)
		a.steps.contents.Changed(keys)
	}
}

// newClaims makes the part that binds claims to volumes.
func newClaims(a *Agent) *claim.Claims {
	c := claim.Config{
		Root: a.Config.RootDir, Objects: a.demand.sources.Objects, Labels: view(a),
		Synced: a.demand.sources.LocalSynced(), Origins: a.demand.sources, Retention: a.Config.Sources.ClaimRetention,
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.machine.facts.Name,
			Labels: a.machine.facts.Labels}},
		Pods:   a.tables.fleet,
		Events: a.records.events, Now: time.Now, Log: a.Log,
	}
	if a.demand.cluster != nil {
		c.Cluster = a.demand.objects
	}
	return claim.New(c)
}

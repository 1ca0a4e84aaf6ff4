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
	watcher := a.sources.Objects.Watch()
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
		a.fleet.ObjectsChanged(keys)
	}
}

// newClaims makes the part that binds claims to volumes.
func newClaims(a *Agent) *claim.Claims {
	c := claim.Config{
		Root: a.Config.RootDir, Objects: a.sources.Objects, Labels: func() map[string]string {
			return view(a).Labels()
		}, Synced: a.sources.LocalSynced(),
		Complete: func() bool { return a.sources.Problems.Len() == 0 },
		Node:     &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.facts.Name, Labels: a.facts.Labels}},
		Changed:  a.fleet.ObjectsChanged,
		Events:   a.events, Now: time.Now, Log: a.Log,
	}
	if a.cluster != nil {
		c.Cluster = a.objects
	}
	return claim.New(c)
}

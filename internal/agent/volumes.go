package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/agent/volumes"
	"github.com/berth-run/berth/internal/pod/steps/claim"
)

// buildVolumes makes the parts that bind claims and mount volumes.
func buildVolumes(a *Agent) {
	s, access := &a.steps, a.demand.access
	s.claims = newClaims(a)
	logDamage(a.Log, s.claims.Load())
	s.volumes, s.contents = volumes.New(volumes.Options{
		Config: a.Config, Claims: s.claims, Drivers: access.Kinds, Objects: access.Objects,
		Events: a.records.events, Log: a.Log, LocalSynced: a.demand.sources.LocalSynced(),
		Allocatable: a.machine.facts.Allocatable, Images: s.images, Issuer: access.Issuer,
		Attachments: access.Attachments,
	})
	logDamage(a.Log, s.volumes.Adopt())
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
	if a.Config.Cluster != nil {
		c.Cluster = a.demand.access.Objects
	}
	return claim.New(c)
}

package agent

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/agent/pressure"
	"github.com/berth-run/berth/internal/pod/steps/claim"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/attached"
	"github.com/berth-run/berth/internal/pod/steps/volume/downwardapi"
	"github.com/berth-run/berth/internal/pod/steps/volume/hostpath"
	imagevolume "github.com/berth-run/berth/internal/pod/steps/volume/image"
	"github.com/berth-run/berth/internal/pod/steps/volume/keyvalue"
	"github.com/berth-run/berth/internal/pod/steps/volume/local"
	"github.com/berth-run/berth/internal/pod/steps/volume/nfs"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
	"github.com/berth-run/berth/internal/pod/steps/volume/projected"
)

// buildVolumes makes the parts that mount volumes, with the kinds of volumes.
func buildVolumes(a *Agent) {
	s := &a.steps
	emptyDir := pressure.EmptyDir(a.Config.RootDir, a.Config.Node.Storage, a.machine.facts.Allocatable, a.Log)
	s.contents = payload.New(payload.Config{Objects: a.demand.objects, Synced: a.demand.sources.LocalSynced(),
		EmptyDir: emptyDir, Events: a.records.events, Log: a.Log})
	s.claims = newClaims(a)
	logDamage(a.Log, s.claims.Load())
	s.volumes = volume.New(volume.Config{Root: a.Config.RootDir, Events: a.records.events, Claims: s.claims,
		Kinds: slices.Concat(a.demand.cluster.Plugins().Kinds(a.Config.RootDir), []volume.Kind{
			emptyDir, hostpath.Kind{}, local.Kind{}, nfs.Kind{Log: a.Log}, imagevolume.Kind{Images: s.images},
			s.contents.Disk(keyvalue.ConfigMap), s.contents.Memory(keyvalue.Secret),
			s.contents.Memory(downwardapi.Source{Allocatable: a.machine.facts.Allocatable}),
			s.contents.Memory(projected.Source{Allocatable: a.machine.facts.Allocatable,
				Issuer: a.demand.cluster.Issuer()}),
		}, attached.Kinds(attached.Options{Root: a.Config.RootDir, FlexVolumes: a.Config.Pods.FlexVolumes,
			Node: a.Config.NodeName, Secrets: a.demand.objects, Log: a.Log,
			Attachments: a.demand.cluster.Plugins().Attachments()})),
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
	if a.demand.cluster != nil {
		c.Cluster = a.demand.objects
	}
	return claim.New(c)
}

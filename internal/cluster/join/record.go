package join

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/cluster/offline"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
)

// record saves the pods of this node for a boot without an API server, and starts them at such a boot.
type record struct {
	server
	tokens  *token.Tokens
	offline *offline.Offline
	kept    []offline.Kept
	// standsIn is set while the saved pods run in place of the API server's.
	standsIn *atomic.Bool
	log      *slog.Logger
}

// server is the API server as the saved pods see it.
type server struct {
	sources *source.Sources
	health  *kubeapi.Health
	objects *objects.Cluster
	drivers *driver.Registry
}

// newRecord makes a record of a cluster, and reads the pods that an earlier agent has saved. setsChanged is raised when
// the result of Sets may have changed.
func newRecord(o Options, s server, tokens *token.Tokens, setsChanged wake.Signal, standsIn *atomic.Bool) *record {
	cfg := o.Config
	keep := config.Offline{}
	if cfg.Offline != nil {
		keep = *cfg.Offline
	}
	r := &record{server: s, tokens: tokens, standsIn: standsIn, log: o.Log, offline: offline.New(offline.Options{
		Root: cfg.RootDir, All: cfg.Offline != nil, KeyFile: keep.KeyFile, MaxAge: keep.MaxAge,
		Desired: o.Sources.Desired, Objects: o.Sources.Objects, Cluster: s.objects, Fleet: o.Fleet,
		Server: s, Tokens: tokens, SetsChanged: setsChanged, Now: time.Now, Log: o.Log,
	})}
	r.load()
	return r
}

// PodChanged implements fleet.Watcher. It updates the saved pods.
func (r *record) PodChanged(uid types.UID) { r.offline.Changed(uid) }

// load reads the pods that an earlier agent saved for a boot without an API server. Their tokens are used at once,
// because a token stays valid until it expires. Everything else is used only when the API server is away.
func (r *record) load() {
	kept, err := r.offline.Load()
	if err != nil {
		r.log.Error("cannot read all saved pods, continuing without the unreadable ones", "err", err)
	}
	r.kept = kept
	for _, k := range kept {
		r.tokens.Seed(k.Pod.UID, k.Tokens)
	}
}

// Sets implements offline.Server. It returns the services, trust bundles and CSI drivers for a pod.
func (s server) Sets(p *corev1.Pod, named []object.Value) (sets offline.Sets, known bool) {
	var err error
	if sets.Services, err = s.objects.Services(p); err != nil {
		return sets, false
	}
	if objects.Trusts(p) {
		sets.Bundles, err = s.objects.Bundles()
		slices.SortFunc(sets.Bundles, func(a, b *certificatesv1beta1.ClusterTrustBundle) int {
			return cmp.Compare(a.Name, b.Name)
		})
	}
	for _, name := range csi.Drivers(p, volumes(named)) {
		d, known := s.drivers.Object(name)
		if !known {
			return sets, false
		}
		if d != nil {
			sets.Drivers = append(sets.Drivers, d)
		}
	}
	return sets, err == nil
}

// volumes returns the PersistentVolumes among objects.
func volumes(all []object.Value) (found []*corev1.PersistentVolume) {
	for _, v := range all {
		if pv, ok := v.(*corev1.PersistentVolume); ok {
			found = append(found, pv)
		}
	}
	return found
}

// Answers implements offline.Server. It reports whether the API server answers and has sent the list of this node's
// pods.
func (s server) Answers() bool {
	select {
	case <-s.sources.Synced():
		return !s.health.State().Away()
	default:
		return false
	}
}

// restore starts the saved pods if the API server is away at the start. They run until it sends the list of this
// node's pods.
func (r *record) restore(ctx context.Context) error {
	if r.away(ctx) {
		r.standIn()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.sources.Synced():
	}
	r.standsIn.Store(false)
	r.objects.EndRestore()
	r.offline.Resync()
	return nil
}

// away waits until the API server is known to be away. It returns false if the list of this node's pods came first.
func (r *record) away(ctx context.Context) bool {
	health := r.health.Watch()
	defer health.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-r.sources.Synced():
			return false
		case <-health.C():
			health.Changes()
		case <-again:
		}
		gone, look := away(r.health.State())
		if gone {
			return true
		}
		again = nil
		if look > 0 {
			again = time.After(look)
		}
	}
}

// standIn runs the saved pods with the saved versions of the objects that they name.
func (r *record) standIn() {
	if len(r.kept) > 0 {
		r.log.Warn("the API server does not answer, starting the saved pods of this node", "pods",
			len(r.kept), "err", r.health.State().Err)
	} else {
		r.log.Warn("the API server does not answer, and this node has no saved pod that may start", "err",
			r.health.State().Err)
	}
	pods := make([]*corev1.Pod, len(r.kept))
	known := make([]objects.Kept, len(r.kept))
	drivers := map[string]*storagev1.CSIDriver{}
	for i, k := range r.kept {
		for _, name := range csi.Drivers(k.Pod, volumes(k.Objects)) {
			drivers[name] = nil // it has no object, unless saved below
		}
		for _, d := range k.Sets.Drivers {
			drivers[d.Name] = d
		}
		pods[i] = k.Pod
		known[i] = objects.Kept{Pod: k.Pod, Objects: k.Objects, Services: k.Sets.Services, Bundles: k.Sets.Bundles}
	}
	r.standsIn.Store(true)
	r.drivers.Restore(drivers)
	r.objects.Restore(known)
	r.sources.Cluster.Restore(pods)
}

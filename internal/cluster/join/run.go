package join

import (
	"context"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/node/kernel"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/steps/poddir"
	"github.com/berth-run/berth/internal/pod/steps/volume/emptydir"
)

// Run implements Reports.
func (r *reports) Run(ctx context.Context) error {
	c, o := r.cluster, r.cluster.o
	pods, swap := o.Config.Pods, r.node.Facts.Info.Swap
	announce(o.Events, o.Config.NodeName, o.Version, found{
		unified: cgroups.IsCgroup2UnifiedMode(), noSwap: emptydir.NoSwap(),
		swap:       swap != nil && swap.Capacity != nil && *swap.Capacity > 0,
		resolvConf: poddir.CheckResolvConf(pods.ResolvConf, pods.ClusterDomain),
	})
	if !o.Config.Kubelet.ProtectKernelDefaults {
		if err := kernel.Set(kernel.Root); err != nil {
			o.Log.Warn("cannot set the kernel parameters that the kubelet sets, pods run with the current ones",
				"err", err)
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	begin := func(run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				o.Log.Error("a part that talks to the cluster has ended", "err", err)
			}
		})
	}
	for _, run := range []func(context.Context) error{
		c.certificate.Run, c.api.Run, c.record.offline.Run, c.record.restore, o.Conditions.Run, r.watchHealth,
	} {
		begin(run)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.certificate.Ready():
	}
	way := moments{booted: stats.BootTime("/"), began: r.node.Began, tried: time.Now()}
	begin(func(ctx context.Context) error { return r.startup.follow(ctx, r.object, way) })
	if c.certificates != nil {
		begin(c.certificates.Run)
	}
	for _, run := range []func(context.Context) error{
		r.watchPods, c.objects.Run, r.answers.run, r.statuses.Run, r.events.Run, r.object.Run, r.settleDevices,
		r.lease.Run, r.mirrors.Run, c.drivers.volumes.Run, c.drivers.claims.Run,
		r.changes.follow(c.drivers.nodeChanged), r.changes.follow(r.nodeChanged), r.changes.follow(r.csiNode),
		r.changes.follow(r.changes.addresses()), r.changes.follow(r.podRanges),
	} {
		begin(run)
	}
	<-ctx.Done()
	return ctx.Err()
}

// watchPods watches the pods of this node. Like the kubelet it starts when the Node object is known, because pods are
// admitted by the node's labels and taints.
func (r *reports) watchPods(ctx context.Context) error {
	select {
	case <-r.object.Received():
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.cluster.pods.Run(ctx)
}

// nodeChanged reconsiders the pods that wait for something of the node.
func (r *reports) nodeChanged(context.Context, *corev1.Node) time.Duration {
	r.cluster.o.Fleet.Reconsider()
	return 0
}

// answers reports to the status writer whether the API server answers.
type answers struct {
	health  *kubeapi.Health
	changed wake.Broadcast
}

func newAnswers(h *kubeapi.Health) *answers { return &answers{health: h} }

// Answers implements report.Health.
func (a *answers) Answers() (bool, <-chan struct{}) {
	changed := a.changed.C() // before the state
	return !a.health.State().Away(), changed
}

func (a *answers) run(ctx context.Context) error {
	w := a.health.Watch()
	defer w.Stop()
	for {
		if _, err := w.Next(ctx); err != nil {
			return err
		}
		a.changed.Wake()
	}
}

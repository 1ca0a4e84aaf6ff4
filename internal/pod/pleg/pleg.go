package pleg

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
)

// Options configures a PLEG.
type Options struct {
	Runtime runtimeapi.RuntimeServiceClient
	// Table is the table to write.
	Table *observed.Table
	// Audit is the time between two relists while events arrive. Default 5 min, as in the kubelet's evented PLEG
	// (KEP-3386).
	Audit time.Duration
	// Poll is the time between two relists of a runtime without events. Default 1 s.
	Poll time.Duration
	Now  func() time.Time
	Log  *slog.Logger
}

// PLEG is the pod lifecycle event generator: the writer of the observed table.
type PLEG struct {
	opts    Options
	table   *observed.Table
	metrics *metrics

	readings lock.Keyed  // by pod, so that an older reading never overwrites a newer one
	marks    lock.Keyed  // by pod: a goroutine of mark holds it while it reads and rests
	failed   wake.Signal // a relist or the reading of a marked pod has failed
	wg       sync.WaitGroup

	mu sync.Mutex
	// marked has the pods with an event since their last reading began. A goroutine of mark waits for each of them.
	marked sets.Set[types.UID]
	// starting has the IDs of the containers that the agent starts.
	starting sets.Set[string]
}

// New returns a PLEG that has read nothing.
func New(o Options) *PLEG {
	if o.Audit <= 0 {
		o.Audit = 5 * time.Minute
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	return &PLEG{
		opts: o, metrics: newMetrics(), table: o.Table, marked: sets.New[types.UID](),
		starting: sets.New[string](), failed: wake.New(),
	}
}

// Starting says that the agent starts a container. Readings that begin before the agent has called judged do not show
// that the start has failed: the agent may find that the failure is not the container's, and remove it.
func (p *PLEG) Starting(id string) (judged func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting.Insert(id)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.starting.Delete(id)
	}
}

// shown returns the status of a container as readings show it.
func (p *PLEG) shown(c pod.ContainerStatus) pod.ContainerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting.Has(c.ID) && c.State == pod.StateExited && c.StartedAt.IsZero() {
		c.State = pod.StateCreated
	}
	return c
}

// Observed returns the last reading of a pod, nil if the runtime does not know the pod.
func (p *PLEG) Observed(uid types.UID) *pod.Observed { return p.table.Observed(uid) }

// Refresh reads a pod again. The reading begins after the call and is in the table when Refresh returns.
func (p *PLEG) Refresh(ctx context.Context, uid types.UID) error {
	unlock, err := p.readings.Lock(ctx, string(uid))
	if err != nil {
		return err
	}
	defer unlock()
	marked := p.unmark(uid) // this reading answers these events too
	if _, err = p.read(ctx, uid); err != nil && marked {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.marked.Insert(uid) // the goroutine of mark reads again
	}
	return err
}

// mark starts a goroutine that reads a pod, unless one waits already. After a reading of a pod with many containers
// the next one waits: meanwhile the events of other containers come, which it also answers.
func (p *PLEG) mark(ctx context.Context, uid types.UID) {
	p.mu.Lock()
	waits := p.marked.Has(uid)
	p.marked.Insert(uid)
	p.mu.Unlock()
	if waits {
		return
	}
	p.wg.Go(func() {
		unlock, err := p.marks.Lock(ctx, string(uid))
		if err != nil {
			return // the agent ends
		}
		defer unlock()
		if rest := p.readMarked(ctx, uid); rest > 0 {
			_ = retry.Sleep(ctx, rest) // it only ends early
		}
	})
}

// readMarked reads a pod unless another reading has already answered its events. It returns how long the next one
// waits.
func (p *PLEG) readMarked(ctx context.Context, uid types.UID) (rest time.Duration) {
	unlock, err := p.readings.Lock(ctx, string(uid))
	if err != nil {
		return 0
	}
	defer unlock()
	if !p.unmark(uid) {
		return 0
	}
	began := time.Now()
	n, err := p.read(ctx, uid)
	if err != nil && ctx.Err() == nil {
		p.opts.Log.Warn("read pod from the runtime failed, retrying", "uid", uid, "err", err)
		p.failed.Wake()
	}
	return pod.Rest(n, time.Since(began))
}

// unmark reports whether a pod was marked. Only a holder of its readings' lock calls it.
func (p *PLEG) unmark(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.marked.Delete(uid)
	return p.marked.Has(uid)
}

// read updates the table with the runtime's state of one pod, and returns the number of its containers. The caller
// holds the lock of the pod's readings.
func (p *PLEG) read(ctx context.Context, uid types.UID) (n int, err error) {
	at := p.opts.Now()
	labels := map[string]string{pod.LabelPodUID: string(uid)}
	boxes, err := p.opts.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return 0, fmt.Errorf("list sandboxes of pod %s: %w", uid, err)
	}
	containers, err := p.opts.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		return 0, fmt.Errorf("list containers of pod %s: %w", uid, err)
	}
	if len(boxes.Items) == 0 && len(containers.Containers) == 0 {
		p.table.Delete(uid)
		return 0, nil
	}
	was, _ := p.table.Get(uid)
	now, err := p.detail(ctx, was, &pod.Observed{UID: uid, At: at}, listed{boxes.Items, containers.Containers})
	if err != nil {
		return 0, err
	}
	p.table.Put(uid, now)
	return len(containers.Containers), nil
}

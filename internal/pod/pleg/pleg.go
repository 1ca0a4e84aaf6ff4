package pleg

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
)

// Options configures a PLEG.
type Options struct {
	Runtime runtimeapi.RuntimeServiceClient
	// Table is the table to write.
	Table *observed.Table
	// Audit is the time between two relists while events arrive. Default 60 s.
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

	mu    sync.Mutex
	locks map[types.UID]*podLock
	wg    sync.WaitGroup
}

// longestRest limits how long the next reading of a pod with many containers waits after one.
const longestRest = time.Second

// podLock serializes the readings of a pod, so that an older reading never overwrites a newer one.
type podLock struct {
	reading chan struct{} // has an element while a reading runs
	marks   chan struct{} // has an element while a goroutine of mark reads or rests
	users   int
	// queued says that a goroutine of mark waits. It will see everything that has happened until now.
	queued bool
	// dirty says that something has happened since the last reading began.
	dirty bool
}

// New returns a PLEG that has read nothing.
func New(o Options) *PLEG {
	if o.Audit <= 0 {
		o.Audit = 60 * time.Second
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	return &PLEG{
		opts: o, metrics: newMetrics(), table: o.Table, locks: map[types.UID]*podLock{},
	}
}

// Observed returns the last reading of a pod, nil if the runtime does not know the pod.
func (p *PLEG) Observed(uid types.UID) *pod.Observed { return p.table.Observed(uid) }

// Refresh reads a pod again. The reading begins after the call and is in the table when Refresh returns.
func (p *PLEG) Refresh(ctx context.Context, uid types.UID) error {
	l := p.hold(uid)
	defer p.release(uid, l)
	l.reading <- struct{}{}
	defer func() { <-l.reading }()
	_, err := p.read(ctx, uid, l)
	return err
}

// mark starts a goroutine that reads a pod, unless one is queued already. After a reading of a pod with many containers
// the next one waits for as long as that took: meanwhile the events of other containers come, which it also answers.
func (p *PLEG) mark(ctx context.Context, uid types.UID) {
	p.mu.Lock()
	l := p.lockOf(uid)
	l.dirty = true
	if l.queued {
		p.mu.Unlock()
		return
	}
	l.queued = true
	l.users++
	p.mu.Unlock()
	p.wg.Go(func() {
		defer p.release(uid, l)
		l.marks <- struct{}{}
		defer func() { <-l.marks }()
		began := time.Now()
		if p.readMarked(ctx, uid, l) > pod.Many {
			_ = retry.Sleep(ctx, min(time.Since(began), longestRest))
		}
	})
}

// readMarked reads a pod unless another reading has already seen what happened. It returns the number of containers.
func (p *PLEG) readMarked(ctx context.Context, uid types.UID, l *podLock) int {
	l.reading <- struct{}{}
	defer func() { <-l.reading }()
	p.mu.Lock()
	l.queued = false
	dirty := l.dirty
	p.mu.Unlock()
	if !dirty {
		return 0
	}
	n, err := p.read(ctx, uid, l)
	if err != nil && ctx.Err() == nil {
		p.opts.Log.Warn("read pod from the runtime failed, retrying at the next event or relist", "uid", uid, "err",
			err)
	}
	return n
}

func (p *PLEG) hold(uid types.UID) *podLock {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lockOf(uid)
	l.users++
	return l
}

// lockOf returns the lock of a pod. The caller holds mu.
func (p *PLEG) lockOf(uid types.UID) *podLock {
	l := p.locks[uid]
	if l == nil {
		l = &podLock{reading: make(chan struct{}, 1), marks: make(chan struct{}, 1)}
		p.locks[uid] = l
	}
	return l
}

func (p *PLEG) release(uid types.UID, l *podLock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(p.locks, uid)
	}
}

// read updates the table with the runtime's state of one pod, and returns the number of its containers. The caller
// holds the pod's lock.
func (p *PLEG) read(ctx context.Context, uid types.UID, l *podLock) (n int, err error) {
	p.setDirty(l, false)
	defer func() {
		if err != nil {
			p.setDirty(l, true)
		}
	}()
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

func (p *PLEG) setDirty(l *podLock, dirty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.dirty = dirty
}

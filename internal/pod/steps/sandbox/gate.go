package sandbox

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// Places is a Gate with a fixed number of places. Callers that enter through Ahead go first, so that begun pods are
// finished before new ones begin. A pod with more than 16 containers has only its share of the places, so that its
// start leaves CPUs to other pods. A caller that stays for longer than the patience loses its place and continues
// without one: a call that hangs does not keep the other pods of the node from starting.
type Places struct {
	share    int
	patience time.Duration

	mu      sync.Mutex
	free    int
	used    map[types.UID]int
	waiting [2][]*waiter // callers of Ahead, then all others
}

// waiter is a caller that waits for a place. turn is closed when it has one.
type waiter struct {
	pod  types.UID
	many bool // its pod has only a share
	turn chan struct{}
}

// NewPlaces returns a Gate of n places, and at most share of them for a pod with many containers.
func NewPlaces(n, share int, patience time.Duration) *Places {
	return &Places{share: share, free: n, patience: patience, used: map[types.UID]int{}}
}

// Enter waits for a place for a pod.
func (p *Places) Enter(ctx context.Context, of *corev1.Pod) (leave func(), err error) {
	return p.enter(ctx, of, 1, p.patience)
}

// Ahead returns the same gate for callers that go first.
func (p *Places) Ahead() Gate { return ahead{p} }

// killPatience is the patience with a caller of Shares. A container that ignores its stop signal must not hold up the
// signals to the next ones.
const killPatience = 100 * time.Millisecond

// Shares returns the same gate for the ends of containers, with a patience of 100 ms. Only pods with many containers
// wait there, and rest between two ends. All others pass it at once.
func (p *Places) Shares() Gate { return shares{p} }

type shares struct{ places *Places }

func (s shares) Enter(ctx context.Context, of *corev1.Pod) (leave func(), err error) {
	if !pod.HasMany(of) {
		return func() {}, nil
	}
	release, err := s.places.enter(ctx, of, 0, killPatience)
	began := time.Now()
	return func() { time.AfterFunc(restAfter(time.Since(began), of), release) }, err
}

// restAfter returns how long a pod with many containers keeps its place after the end of one that took so long. It is
// longer with each container of the pod, because so is the work that follows. A pod with 256 containers or more rests
// for as long as it has worked.
func restAfter(took time.Duration, of *corev1.Pod) time.Duration {
	return took * time.Duration(min(len(of.Spec.Containers), 256)) / 256
}

type ahead struct{ places *Places }

func (a ahead) Enter(ctx context.Context, of *corev1.Pod) (leave func(), err error) {
	return a.places.enter(ctx, of, 0, a.places.patience)
}

func (p *Places) enter(ctx context.Context, of *corev1.Pod, class int, patience time.Duration) (leave func(),
	err error) {
	w := &waiter{of.UID, pod.HasMany(of), make(chan struct{})}
	p.mu.Lock()
	p.waiting[class] = append(p.waiting[class], w)
	p.admit()
	p.mu.Unlock()
	select {
	case <-w.turn:
	case <-ctx.Done():
		p.giveUp(class, w)
		return nil, ctx.Err()
	}
	release := sync.OnceFunc(func() { p.release(w.pod) })
	lost := time.AfterFunc(patience, release)
	return func() { lost.Stop(); release() }, nil
}

// giveUp leaves the queue, or returns a place that became free at the same moment.
func (p *Places) giveUp(class int, w *waiter) {
	p.mu.Lock()
	i := slices.Index(p.waiting[class], w)
	if i >= 0 {
		p.waiting[class] = slices.Delete(p.waiting[class], i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		p.release(w.pod)
	}
}

// release returns the place of a pod.
func (p *Places) release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[uid]--; p.used[uid] == 0 {
		delete(p.used, uid)
	}
	p.free++
	p.admit()
}

// admit gives the free places to the first callers. It passes those over whose pods have their share.
func (p *Places) admit() {
	for class, queue := range p.waiting {
		p.waiting[class] = slices.DeleteFunc(queue, func(w *waiter) bool {
			if p.free == 0 || w.many && p.used[w.pod] >= p.share {
				return false
			}
			p.free--
			p.used[w.pod]++
			close(w.turn)
			return true
		})
	}
}

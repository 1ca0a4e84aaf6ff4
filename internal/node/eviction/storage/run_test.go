package storage

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/base/wake"
)

// node implements Pods.
type node struct {
	changed wake.Signal

	mu      sync.Mutex
	pods    []*corev1.Pod
	used    map[types.UID]int64
	counted map[types.UID]int64 // by the file system
	stuck   map[types.UID]chan struct{}
	slow    time.Duration // how long Measure waits
	disk    int64
	looks   map[types.UID]int
	lists   int // calls of Running
	evicted []string
}

func newNode(pods ...*corev1.Pod) *node {
	return &node{changed: wake.New(), pods: pods, used: map[types.UID]int64{}, stuck: map[types.UID]chan struct{}{},
		looks: map[types.UID]int{}}
}

func (n *node) Running() []*corev1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists++
	return slices.Clone(n.pods)
}

func (n *node) Measure(_ context.Context, p *corev1.Pod) (Usage, error) {
	n.mu.Lock()
	stuck := n.stuck[p.UID]
	n.looks[p.UID]++
	used := n.used[p.UID]
	n.mu.Unlock()
	time.Sleep(n.slow)
	if stuck != nil {
		<-stuck
		return Usage{}, errors.New("disk is gone")
	}
	return Usage{Total: used}, nil
}

func (n *node) Counted(p *corev1.Pod) (Usage, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	bytes, ok := n.counted[p.UID]
	return Usage{Total: bytes}, ok, nil
}

func (n *node) Disk() (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.disk, nil
}

func (n *node) Evict(p *corev1.Pod, e Excess) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.evicted = append(n.evicted, p.Name+": "+e.Signal)
	return true
}

func (n *node) Changed() <-chan struct{} { return n.changed.C() }

// write lets a pod write bytes.
func (n *node) write(uid types.UID, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[uid] += bytes
	n.disk += bytes
}

func limited(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := read(t, "containers: [{name: app, resources: {limits: {ephemeral-storage: 1Gi}}}]")
	p.Name, p.UID = name, types.UID(name)
	return p
}

// start runs Limits in a bubble of synctest.
func start(t *testing.T, n *node, off bool) (end func()) {
	t.Helper()
	ready := make(chan struct{})
	close(ready)
	l := New(Options{Pods: n, Ready: ready, Off: off, Log: slog.New(slog.DiscardHandler)})
	return looptest.Start(t, l.Run, context.Canceled)
}

// A measurement that waits on a busy machine is repeated as soon as any other.
func TestAMeasurementThatWaitsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(limited(t, "hog"))
		n.slow = 5 * time.Second
		end := start(t, n, false)
		time.Sleep(7 * time.Second)
		n.write("hog", 2<<30)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"hog: ephemeralpodfs.limit"}, n.evicted); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		end()
	})
}

func TestAPodThatWritesFastIsEvictedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(limited(t, "hog"), limited(t, "quiet"), read(t, "containers: [{name: app}]"))
		end := start(t, n, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(map[types.UID]int{"hog": 6, "quiet": 6}, n.looks); diff != "" {
			t.Errorf("measured in a quiet minute (-want +got):\n%s", diff)
		}
		n.write("hog", 2<<30)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]string{"hog: ephemeralpodfs.limit"}, n.evicted); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(n.evicted) != 1 {
			t.Errorf("evicted again: %v", n.evicted)
		}
		end()
	})
}

// What the file system counts is read within a quarter of a second, however long a walk takes.
func TestACountedPodIsEvictedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(limited(t, "hog"))
		n.stuck["hog"] = make(chan struct{})
		n.counted = map[types.UID]int64{"hog": 1<<30 - 1<<20}
		end := start(t, n, false)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if len(n.evicted) > 0 {
			t.Errorf("evicted below its limit: %v", n.evicted)
		}
		n.mu.Lock()
		n.counted["hog"] += 2 << 20
		n.mu.Unlock()
		n.write("hog", 2<<20)
		time.Sleep(shortestCounted)
		synctest.Wait()
		if diff := cmp.Diff([]string{"hog: ephemeralpodfs.limit"}, n.evicted); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		close(n.stuck["hog"])
		end()
	})
}

func TestAPodThatTwoLooksFindIsEvictedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(limited(t, "hog"))
		n.counted = map[types.UID]int64{"hog": 2 << 30}
		end := start(t, n, false)
		n.write("hog", 2<<30)
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"hog: ephemeralpodfs.limit"}, n.evicted); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		end()
	})
}

func TestAPodThatStartsLaterIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		end := start(t, n, false)
		time.Sleep(time.Hour)
		n.mu.Lock()
		n.pods = append(n.pods, limited(t, "late"))
		n.mu.Unlock()
		n.write("late", 2<<30)
		n.changed.Wake()
		time.Sleep(2 * firstMeasurement)
		synctest.Wait()
		if diff := cmp.Diff([]string{"late: ephemeralpodfs.limit"}, n.evicted); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		end()
	})
}

// Each look is at all pods. If each change was one, the cost of a burst would grow with the square of its pods.
func TestABurstOfChangesIsOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		end := start(t, n, false)
		synctest.Wait()
		before := n.lists
		for range 100 {
			n.changed.Wake()
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if looks := n.lists - before; looks != 1 {
			t.Errorf("%d looks at 100 changes in 100 ms, want 1", looks)
		}
		end()
	})
}

func TestAPodWhoseDiskDoesNotAnswerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(limited(t, "stuck"), limited(t, "hog"))
		n.stuck["stuck"] = make(chan struct{})
		end := start(t, n, false)
		n.write("hog", 2<<30)
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"hog: ephemeralpodfs.limit"}, n.evicted); diff != "" || n.looks["stuck"] != 1 {
			t.Errorf("%d looks at the other, (-want +got):\n%s", n.looks["stuck"], diff)
		}
		close(n.stuck["stuck"])
		end()
	})
}

func TestNothingIsMeasuredWithoutIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(limited(t, "hog"))
		end := start(t, n, true)
		n.write("hog", 2<<30)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(n.looks) > 0 {
			t.Errorf("measured %v", n.looks)
		}
		end()
	})
}

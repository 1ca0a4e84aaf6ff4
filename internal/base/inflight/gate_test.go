package inflight

import (
	"sync"
	"sync/atomic"
	"testing"
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestCloseOfAnEmptyGateDoesNotWait(t *testing.T) {
	var g Gate
	if !closed(g.Close()) {
		t.Error("an empty gate waits")
	}
	if g.Enter() {
		t.Error("a closed gate admits work")
	}
	if !closed(g.Close()) {
		t.Error("the second Close waits")
	}
}

func TestCloseWaitsForAllThatEntered(t *testing.T) {
	var g Gate
	for range 2 {
		if !g.Enter() {
			t.Fatal("an open gate refuses work")
		}
	}
	first, second := g.Close(), g.Close()
	if g.Enter() {
		t.Error("a closing gate admits work")
	}
	g.Leave()
	if closed(first) || closed(second) {
		t.Error("Close does not wait for the second piece of work")
	}
	g.Leave()
	if !closed(first) || !closed(second) {
		t.Error("Close waits on after the last piece of work")
	}
}

func TestIdleLeavesTheGateOpen(t *testing.T) {
	var g Gate
	for range 2 {
		if !g.Enter() {
			t.Fatal("the gate refuses work after Idle")
		}
		idle := g.Idle()
		if closed(idle) {
			t.Error("a gate with work inside is idle")
		}
		g.Leave()
		if !closed(idle) {
			t.Error("a gate without work is not idle")
		}
	}
}

func TestLeaveWithoutEnterPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Leave without Enter does not panic")
		}
	}()
	new(Gate).Leave()
}

// While goroutines enter and leave, Close returns only when no admitted work runs, and none begins later.
func TestNoWorkRunsAfterClose(t *testing.T) {
	for range 50 {
		var g Gate
		var running atomic.Int32
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for g.Enter() {
					running.Add(1)
					running.Add(-1)
					g.Leave()
				}
			})
		}
		<-g.Close()
		if n := running.Load(); n != 0 {
			t.Errorf("%d pieces of work run after Close", n)
		}
		workers.Wait()
	}
}

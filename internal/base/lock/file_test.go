package lock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The second process waits until the first yields.
func TestFileIsHeldByOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.lock")
	first, err := Acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 2*turn)
	defer cancel()
	if _, err := Acquire(impatient, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("two processes have the lock: %v", err)
	}
	contended := make(chan error, 1)
	go func() { contended <- first.Contended(t.Context()) }()
	go func() {
		if err := <-contended; err != nil {
			t.Errorf("Contended returned %v", err)
		}
		if err := first.Release(); err != nil {
			t.Error(err)
		}
	}()
	second := make(chan error, 1)
	go func() {
		f, err := Acquire(t.Context(), path)
		if err == nil {
			err = f.Release()
		}
		second <- err
	}()
	for { // the watch may have begun after the second Acquire, so open the file until the watch sees it
		select {
		case err := <-second:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(turn):
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
	}
}

func TestTryForGivesUpWhenItsPatienceIsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := TryFor(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryFor(t.Context(), path, firstTurn); !errors.Is(err, ErrHeld) {
		t.Errorf("the lock is held: %v, want %v", err, ErrHeld)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := TryFor(ctx, path, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v, want %v", err, context.Canceled)
	}
	go held.Close()
	f, err := TryFor(t.Context(), path, time.Hour)
	if err != nil {
		t.Fatalf("the lock was released: %v", err)
	}
	f.Close()
}

func TestContendedEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.lock")
	f, err := Acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Release() }()
	short, cancel := context.WithTimeout(t.Context(), turn)
	defer cancel()
	if err := f.Contended(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Contended returned %v", err)
	}
}

package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestKeyedLocksEachKeyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Keyed
		unlock, err := k.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := k.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		short, cancel := context.WithCancel(t.Context())
		locked := make(chan error, 2)
		go func() {
			_, err := k.Lock(short, "a")
			locked <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-locked; !errors.Is(err, context.Canceled) {
			t.Errorf("a wait whose context ends returned %v", err)
		}
		go func() {
			again, err := k.Lock(t.Context(), "a")
			if err == nil {
				again()
			}
			locked <- err
		}()
		synctest.Wait()
		if len(locked) > 0 {
			t.Error("a lock that is held was given to a second holder")
		}
		unlock()
		if err := <-locked; err != nil {
			t.Errorf("the wait for a released lock returned %v", err)
		}
		synctest.Wait()
		if n := k.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

func TestLockAllHoldsEveryKeyOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Keyed
		unlock, err := k.LockAll(t.Context(), "b", "a", "b")
		if err != nil || k.Len() != 2 {
			t.Fatalf("%d keys are locked, error %v", k.Len(), err)
		}
		short, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() {
			_, err := k.LockAll(short, "c", "0", "b")
			waited <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("a wait whose context ends returned %v", err)
		}
		unlock()
		if n := k.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

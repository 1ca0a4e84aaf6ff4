package sandbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(1, 10*time.Second)
		leave, err := p.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Enter(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second one entered: %v", err)
		}
		leave()
		begin := time.Now()
		hangs, err := p.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next, err := p.Enter(t.Context()) // the one that hangs loses its place
		if took := time.Since(begin); err != nil || took != 10*time.Second {
			t.Errorf("the next one entered after %v, %v", took, err)
		}
		hangs() // gives nobody else's place away
		if _, err := p.Enter(withTimeout(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a place was given away twice: %v", err)
		}
		next()
	})
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

package emptydir

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestNextMeasurement(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, time.Millisecond: 10 * time.Second, time.Second: 100 * time.Second,
		time.Minute: 10 * time.Minute,
	} {
		if got := nextMeasurement(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}

// evictFunc implements pods.
type evictFunc func(*corev1.Pod, string)

func (f evictFunc) Evict(p *corev1.Pod, message string) { f(p, message) }

func TestLimitsEvictThePod(t *testing.T) {
	needRoot(t)
	var mu sync.Mutex
	var evicted []string
	said := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), evicted...)
	}
	small := corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Mi"))}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		limits := NewLimits(LimitOptions{Log: slog.New(slog.DiscardHandler),
			Pods: evictFunc(func(p *corev1.Pod, message string) {
				mu.Lock()
				defer mu.Unlock()
				evicted = append(evicted, p.Name+": "+message)
			})})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- limits.Run(ctx) }()
		k := Kind{Limits: limits}
		for name, source := range map[string]corev1.EmptyDirVolumeSource{"bounded": small, "unbounded": {},
			"zero": {SizeLimit: new(resource.MustParse("0"))}} {
			r := request(t, k, source, nil)
			r.Target = filepath.Join(dir, name)
			r.Pod.Name = name
			if _, err := k.Publish(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(r.Target, "file"), make([]byte, 1<<19), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := cmp.Diff([]string(nil), said()); d != "" {
			t.Errorf("below the limit (-want +got):\n%s", d)
		}
		for _, name := range []string{"bounded", "unbounded", "zero"} {
			if err := os.WriteFile(filepath.Join(dir, name, "more"), make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(measurePeriod)
		synctest.Wait()
		want := []string{`bounded: Usage of EmptyDir volume "data" exceeds the limit "1Mi".`}
		if d := cmp.Diff(want, said()); d != "" {
			t.Errorf("above the limit (-want +got):\n%s", d)
		}
		if err := k.Unpublish(t.Context(), filepath.Join(dir, "bounded")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if d := cmp.Diff(want, said()); d != "" {
			t.Errorf("after it is gone (-want +got):\n%s", d)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

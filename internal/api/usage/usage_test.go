package usage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api"
)

// fakeStats counts how often it measures.
type fakeStats struct {
	measured atomic.Uint64
	err      error
}

func (f *fakeStats) Summary(_ context.Context, brief bool) (*statsapi.Summary, error) {
	if !brief {
		return nil, errors.New("more than CPU and memory was measured")
	}
	n := f.measured.Add(1)
	return &statsapi.Summary{Pods: []statsapi.PodStats{
		{PodRef: statsapi.PodReference{UID: "a"}, CPU: &statsapi.CPUStats{UsageNanoCores: new(n)},
			Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(1 << 20))}},
		{PodRef: statsapi.PodReference{UID: "new"}},
	}}, f.err
}

// pipeWriter is a response that the test reads as it is written.
type pipeWriter struct {
	*httptest.ResponseRecorder
	out *io.PipeWriter
}

func (w pipeWriter) Write(data []byte) (int, error) { return w.out.Write(data) }

// watch watches a feed. next returns the usage in the next line.
func watch(t *testing.T, f *Feed) (next func() api.Usage, leave func()) {
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- f.Stream(pipeWriter{httptest.NewRecorder(), out},
			httptest.NewRequestWithContext(ctx, http.MethodGet, "/berth/v1/usage", nil))
	}()
	lines := bufio.NewScanner(in)
	return func() (u api.Usage) {
			t.Helper()
			if !lines.Scan() {
				t.Fatal("the stream has ended")
			}
			if err := json.Unmarshal(lines.Bytes(), &u); err != nil {
				t.Fatal(err)
			}
			return u
		}, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
}

func TestClientsShareMeasurementsAndNobodyMeasuresWithoutThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stats := &fakeStats{}
		f, began := New(stats), time.Now()
		if time.Sleep(time.Hour); stats.measured.Load() != 0 {
			t.Error("measured although nobody watches")
		}
		next, leave := watch(t, f)
		want := map[types.UID]api.PodUsage{"new": {},
			"a": {CPU: new(uint64(1)), Memory: new(uint64(1 << 20))}}
		if diff := cmp.Diff(want, next().Pods); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		next2, leave2 := watch(t, f)
		for i, wait := range []time.Duration{0, time.Second, 6 * time.Second, 11 * time.Second} {
			lines := []api.Usage{next2()}
			if i > 0 {
				lines = append(lines, next())
			}
			for _, u := range lines {
				if got := *u.Pods["a"].CPU; got != uint64(i+1) || time.Since(began) != time.Hour+wait {
					t.Errorf("line %d shows measurement %d after %v", i, got, time.Since(began))
				}
			}
		}
		leave()
		leave2()
		if time.Sleep(time.Hour); stats.measured.Load() != 4 {
			t.Errorf("%d measurements", stats.measured.Load())
		}
	})
}

func TestFailedMeasurementIsAnAnswer(t *testing.T) {
	stats := &fakeStats{err: errors.New("no cgroups")}
	err := New(stats).Stream(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/berth/v1/usage", nil))
	if err == nil || err.Error() != "measure the pods: no cgroups" {
		t.Error(err)
	}
}

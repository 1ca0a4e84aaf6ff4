package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// wire is a connection to an API server in the test's own time. It records each request with its second. The test
// supplies the responses.
type wire struct {
	mu     sync.Mutex
	begin  time.Time
	sent   []string
	answer func(pod string) (*http.Response, error) // nil: the pod
	held   chan struct{}                            // requests wait until it is closed; nil: none waits
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	pod := path.Base(path.Dir(r.URL.Path))
	w.mu.Lock()
	w.sent = append(w.sent, fmt.Sprintf("%s %s @%.0f", r.Method, pod, time.Since(w.begin).Seconds()))
	answer, held := w.answer, w.held
	w.mu.Unlock()
	if held != nil {
		<-held
	}
	if answer != nil {
		return answer(pod)
	}
	return respond(http.StatusOK, nil, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "default", UID: types.UID(pod), ResourceVersion: "5"}}), nil
}

func respond(code int, header http.Header, body any) *http.Response {
	text, _ := json.Marshal(body) // the API's types always encode
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(text))}
}

func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.sent
	w.sent = nil
	return was
}

func (w *wire) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// start runs a writer on a wire.
func start(t *testing.T, o Options) (*wire, *Writer) {
	t.Helper()
	w := &wire{begin: time.Now()}
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://api", QPS: -1},
		&http.Client{Transport: w})
	if err != nil {
		t.Fatal(err)
	}
	o.Client, o.Log = client, slog.New(slog.DiscardHandler)
	writer := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = writer.Run(ctx) // with the error of ctx
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w, writer
}

// rowOf returns the row of a pod with a revision of its object and a message in its status.
func rowOf(name, revision, message string) Row {
	return Row{UID: types.UID(name), Status: corev1.PodStatus{Message: message},
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name),
			ResourceVersion: revision}}}
}

func TestUrgentFirstAndNewestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, writer := start(t, Options{InFlight: 1})
		held := make(chan struct{})
		w.set(func() { w.held = held })
		writer.Set(rowOf("first", "1", "a"))
		synctest.Wait() // the first is in flight, all others wait
		for i := range 3 {
			writer.Set(rowOf("other", "1", fmt.Sprint(i)))
		}
		flip := rowOf("flip", "1", "")
		flip.Status.Conditions = []corev1.PodCondition{cond(corev1.PodReady, "True", "", 1)}
		writer.Set(flip)
		end := rowOf("end", "1", "")
		end.Status.Phase = corev1.PodFailed
		writer.Set(end)
		time.Sleep(2 * time.Second)
		w.set(func() { w.held = nil })
		close(held)
		synctest.Wait()
		var took dto.Metric
		if err := writer.synced.Write(&took); err != nil || took.Histogram.GetSampleCount() != 4 ||
			took.Histogram.GetSampleSum() != 8 {
			t.Errorf("four statuses of 2 s each took %v, %v", took.Histogram, err)
		}
		want := []string{"PATCH first @0", "PATCH end @2", "PATCH flip @2", "PATCH other @2"}
		if diff := cmp.Diff(want, w.take()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// A writer that reverts each status is overwritten at growing intervals.
func TestAnotherWriterIsNotFought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, writer := start(t, Options{})
		for i := range 8 { // each second the watch sends the other writer's version
			w.set(func() {
				w.answer = func(string) (*http.Response, error) {
					p := rowOf("web", "5", "").Pod
					p.Kind, p.APIVersion, p.Status.Message = "Pod", "v1", "ours"
					return respond(http.StatusOK, nil, p), nil
				}
			})
			writer.Set(rowOf("web", fmt.Sprint(10+i), "ours"))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		want := []string{"PATCH web @0", "PATCH web @1", "PATCH web @2", "PATCH web @4", "PATCH web @8"}
		if diff := cmp.Diff(want, w.take()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// A status that the API server accepts but drops is sent once.
func TestADroppedStatusIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, writer := start(t, Options{})
		for i := range 5 {
			writer.Set(rowOf("web", fmt.Sprint(10+i), "not kept"))
			time.Sleep(time.Hour)
		}
		if diff := cmp.Diff([]string{"PATCH web @0"}, w.take()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, writer := start(t, Options{})
		w.set(func() {
			w.answer = func(string) (*http.Response, error) {
				return respond(http.StatusTooManyRequests, http.Header{"Retry-After": {"20"}},
					&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
						Status: metav1.StatusFailure, Reason: metav1.StatusReasonTooManyRequests,
						Code:    http.StatusTooManyRequests,
						Details: &metav1.StatusDetails{RetryAfterSeconds: 20}}), nil
			}
		})
		writer.Set(rowOf("web", "1", "a"))
		time.Sleep(time.Second)
		w.set(func() { w.answer = nil })
		writer.Set(rowOf("web", "1", "b"))
		time.Sleep(18 * time.Second)
		if diff := cmp.Diff([]string{"PATCH web @0"}, w.take()); diff != "" {
			t.Errorf("too early (-want +got):\n%s", diff)
		}
		time.Sleep(7 * time.Second)
		if n := len(w.take()); n != 1 || writer.Stats().Waiting != 0 {
			t.Errorf("%d requests after the time, %+v", n, writer.Stats())
		}
	})
}

// health reports an API server as away until back is called.
type health struct {
	mu      sync.Mutex
	ok      bool
	changed chan struct{}
}

func (h *health) Answers() (bool, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ok, h.changed
}

func (h *health) back() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ok = true
	close(h.changed)
	h.changed = make(chan struct{})
}

func TestOutageOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, writer := start(t, Options{InFlight: 4})
		w.set(func() {
			w.answer = func(string) (*http.Response, error) { return nil, errors.New("connection refused") }
		})
		for i := range 100 {
			writer.Set(rowOf(fmt.Sprint("web-", i), "1", "a"))
		}
		time.Sleep(time.Minute)
		if n := len(w.take()); n < 10 || n > 60 {
			t.Errorf("%d requests in a minute of an outage", n)
		}
		w.set(func() { w.answer = nil })
		time.Sleep(lastOutage)
		synctest.Wait()
		if s := writer.Stats(); s.Waiting != 0 {
			t.Errorf("after the outage: %+v", s)
		}
	})
}

func TestNothingIsSentWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &health{changed: make(chan struct{})}
		w, writer := start(t, Options{Health: h})
		writer.Set(rowOf("web", "1", "a"))
		time.Sleep(time.Hour)
		writer.Set(rowOf("web", "1", "b"))
		if sent := w.take(); len(sent) != 0 {
			t.Errorf("sent while away: %v", sent)
		}
		h.back()
		synctest.Wait()
		if diff := cmp.Diff([]string{"PATCH web @3600"}, w.take()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

package cri_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest/fake"
)

func runSandbox(ctx context.Context, c *cri.Client, name string) (*runtimeapi.RunPodSandboxResponse, error) {
	return c.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: name},
	}})
}

func TestEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"":            `container runtime endpoint is empty: write unix:///path/to/runtime.sock`,
		"/run/c.sock": `container runtime endpoint "/run/c.sock" has no scheme: write unix:///run/c.sock`,
		"tcp://127.0.0.1:2375": `container runtime endpoint "tcp://127.0.0.1:2375" is not supported: ` +
			`write unix:///path/to/runtime.sock`,
		"unix://run/c.sock": `container runtime endpoint "unix://run/c.sock" needs an absolute path: ` +
			`write unix:///path/to/runtime.sock`,
		"npipe:////./pipe/cri": `container runtime endpoint "npipe:////./pipe/cri" is not supported: ` +
			`write unix:///path/to/runtime.sock`,
		"unix:///run/none.sock": "",
	} {
		got := ""
		c, err := cri.New(endpoint, cri.Options{})
		if err != nil {
			got = err.Error()
		} else if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got != want {
			t.Errorf("endpoint %q: %q, want %q", endpoint, got, want)
		}
	}
}

func TestDialErrorNamesTheNextStep(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, "stale.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	other := serve(t, filepath.Join(dir, "other.sock"), grpc.NewServer())
	for _, test := range []struct{ path, want string }{
		{filepath.Join(dir, "absent.sock"),
			"absent.sock does not exist: start the runtime or correct containerRuntimeEndpoint"},
		{file, "file is not a socket: correct containerRuntimeEndpoint"},
		{stale, "the socket exists but no runtime answers on it: restart the runtime"},
		{other, "it does not serve CRI v1: enable its CRI plugin or update it"},
	} {
		_, err := cri.Dial(t.Context(), "unix://"+test.path, cri.Options{})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.path) {
			t.Errorf("dial %s: %v, want %q", test.path, err, test.want)
		}
	}
}

// serve listens on a unix socket until the test ends.
func serve(t *testing.T, path string, s *grpc.Server) string {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

func TestCallErrors(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault fake.Fault
		want  string
		is    func(error) bool
	}{
		{"hang", fake.Fault{Hang: true}, "RunPodSandbox: no answer from runtime at fake within 2m0s", cri.IsHung},
		{"empty id", fake.Fault{Answer: func(any) any { return &runtimeapi.RunPodSandboxResponse{} }},
			"RunPodSandbox: runtime at fake answered success without PodSandboxId", func(err error) bool {
				return !cri.IsNotFound(err)
			}},
		{"not found", fake.Fault{Err: status.Error(codes.NotFound, "no such image")}, "RunPodSandbox: no such image",
			cri.IsNotFound},
		{"unimplemented", fake.Unimplemented(""), "RunPodSandbox: not implemented by runtime at fake",
			cri.IsUnimplemented},
		{"plain", fake.Fault{Err: errors.New("no space left on device")}, "RunPodSandbox: no space left on device",
			func(err error) bool { return status.Code(err) == codes.Unknown }},
		{"runtime's own deadline", fake.Fault{Err: status.Error(codes.DeadlineExceeded, "shim is slow")},
			"RunPodSandbox: shim is slow",
			func(err error) bool { return cri.IsDeadline(err) && !cri.IsHung(err) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fake.New(t)
				c := f.Client(cri.Options{Timeout: time.Minute})
				test.fault.Method = "RunPodSandbox"
				f.Inject(test.fault)
				_, err := runSandbox(t.Context(), c, "p")
				if err == nil || err.Error() != test.want {
					t.Fatalf("error %v, want %q", err, test.want)
				}
				if !test.is(err) {
					t.Errorf("error has code %s", status.Code(err))
				}
			})
		})
	}
}

func TestNeverStarted(t *testing.T) {
	const started = `failed to start containerd task "c": `
	for text, want := range map[string]bool{
		"failed to create containerd task: ttrpc: closed":              true,
		"failed to create containerd task: context canceled":           true,
		started + "OCI runtime start failed: process is already dead":  true,
		`start c: crun: cannot open "/proc/7/ns/ipc": no such process`: true,
		started + "ttrpc: closed: unknown":                             false,
		started + "context canceled: unknown":                          false,
	} {
		if got := cri.NeverStarted(errors.New(text)); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
	for _, code := range []codes.Code{codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable} {
		if cri.NeverStarted(status.Error(code, "no answer")) {
			t.Errorf("%s says that it never started", code)
		}
	}
}

// A runtime may learn of the end of a sandbox after it has reported that a start in it has failed.
func TestSandboxEnded(t *testing.T) {
	for after, want := range map[time.Duration]bool{0: true, 300 * time.Millisecond: true, time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			f := fake.New(t)
			c := f.Client(cri.Options{})
			box, err := runSandbox(t.Context(), c, "p")
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			f.Inject(fake.Fault{Method: "PodSandboxStatus", Answer: func(resp any) any {
				box := resp.(*runtimeapi.PodSandboxStatusResponse).Status
				if time.Since(begin) >= after {
					box.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
				}
				return resp
			}})
			if got := cri.SandboxEnded(t.Context(), c.Runtime, box.PodSandboxId); got != want {
				t.Errorf("known after %v: %t, want %t", after, got, want)
			}
		})
	}
}

func TestCallEndsWithTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake.New(t)
		c := f.Client(cri.Options{})
		f.Inject(fake.Fault{Method: "RunPodSandbox", Hang: true})

		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := runSandbox(canceled, c, "p")
		if !errors.Is(err, context.Canceled) || err.Error() != "RunPodSandbox: context canceled" {
			t.Errorf("canceled: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = runSandbox(short, c, "p")
		if !errors.Is(err, context.DeadlineExceeded) || cri.IsHung(err) ||
			err.Error() != "RunPodSandbox: no answer from runtime at fake within 1s" {
			t.Errorf("caller's deadline: %v", err)
		}
	})
}

func TestStreamsHaveOneDeadlineExceptEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake.New(t)
		c := f.Client(cri.Options{Timeout: time.Minute})
		f.Inject(fake.Fault{Method: "StreamContainers", Hang: true})
		list, err := c.Runtime.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := list.Recv(); !cri.IsHung(err) {
			t.Errorf("hanging list: %v", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		events, err := c.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, func() { _, _ = runSandbox(t.Context(), c, "p") })
		if event, err := events.Recv(); err != nil {
			t.Errorf("after a quiet hour: %s, %v", event, err)
		}
		cancel()
		for err == nil {
			_, err = events.Recv()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after the caller has cancelled the stream: %v", err)
		}
	})
}

func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake.New(t)
		c := f.Client(cri.Options{})
		if _, err := c.Verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.Down()
		synctest.Wait()
		if _, err := runSandbox(t.Context(), c, "p"); !cri.IsUnavailable(err) {
			t.Fatalf("runtime is down: %v", err)
		}
		time.Sleep(time.Hour)
		f.Up()
		time.Sleep(1200 * time.Millisecond) // the longest back-off plus its jitter
		if _, err := runSandbox(t.Context(), c, "p"); err != nil {
			t.Errorf("runtime is back: %v", err)
		}
	})
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := fake.New(t)
	for _, name := range []string{"a", "b"} { // two clients with the same registerer share the series
		c := f.Client(cri.Options{Registerer: reg})
		for range 2 { // the second call fails, since the name is in use
			_, err := runSandbox(t.Context(), c, name)
			var failed *cri.Error
			if err != nil && !errors.As(err, &failed) {
				t.Errorf("%T is not an *Error", err)
			}
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"kubelet_runtime_operations_total operation_type=run_podsandbox":            4,
		"kubelet_runtime_operations_errors_total operation_type=run_podsandbox":     2,
		"kubelet_runtime_operations_duration_seconds operation_type=run_podsandbox": 4,
		"kubelet_started_pods_total":                                                4,
		"kubelet_started_pods_errors_total":                                         2,
		"kubelet_started_user_namespaced_pods_total":                                0,
		"kubelet_started_user_namespaced_pods_errors_total":                         0,
		"kubelet_run_podsandbox_duration_seconds runtime_handler=":                  4,
		"kubelet_run_podsandbox_errors_total runtime_handler=":                      2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	c := fake.New(t).Client(cri.Options{})
	if _, err := c.Verify(t.Context()); err != nil { // without a span in its context
		t.Fatal(err)
	}
	ctx, parent := tracer.Start(t.Context(), "sandbox")
	sandbox, err := runSandbox(ctx, c, "p")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "absent"},
		},
	})
	if !cri.IsNotFound(err) {
		t.Fatal(err)
	}
	parent.End()

	type span struct {
		Name, Parent, Error string
		Attributes          map[attribute.Key]string
	}
	var got []span
	for _, s := range recorder.Ended() {
		as := map[attribute.Key]string{}
		for _, a := range s.Attributes() {
			as[a.Key] = a.Value.AsString()
		}
		p := ""
		if s.Parent().SpanID() == parent.SpanContext().SpanID() {
			p = "sandbox"
		}
		got = append(got, span{s.Name(), p, s.Status().Description, as})
	}
	want := []span{
		{"cri/RunPodSandbox", "sandbox", "", map[attribute.Key]string{"cri.sandbox.id": "sandbox-1"}},
		{"cri/CreateContainer", "sandbox", `CreateContainer: image "absent": not found`, map[attribute.Key]string{
			"cri.sandbox.id": "sandbox-1", "k8s.container.name": "app", "container.image.name": "absent"}},
		{"sandbox", "", "", map[attribute.Key]string{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// answers are the answers of a runtime that a Monitor has shown.
type answers []*runtimeapi.StatusResponse

func (a *answers) SetRuntimeStatus(s *runtimeapi.StatusResponse) { *a = append(*a, s) }

func TestMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake.New(t)
		c := f.Client(cri.Options{})
		var shown answers
		m := cri.NewMonitor(c, cri.MonitorOptions{Conditions: &shown}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		runtime := func() cri.Condition {
			synctest.Wait()
			return m.Health().Runtime(time.Now())
		}

		if got := runtime(); !got.Ready {
			t.Errorf("at first: %+v", got)
		}
		time.Sleep(time.Hour)
		if synctest.Wait(); len(shown) != 121 {
			t.Errorf("%d checks in an hour without failures", len(shown))
		}

		// A lost call triggers a check at once, and a short absence does not make the runtime unready.
		f.Down()
		time.Sleep(time.Second)
		if _, err := runSandbox(ctx, c, "p"); !cri.IsUnavailable(err) {
			t.Fatalf("runtime is down: %v", err)
		}
		if got := runtime(); !got.Ready || m.Health().Err == nil {
			t.Errorf("after a lost call: %+v, %v", got, m.Health().Err)
		}
		time.Sleep(31 * time.Second)
		if got := runtime(); got.Ready || got.Reason != "RuntimeNotAnswering" {
			t.Errorf("after a long absence: %+v", got)
		}
		f.Inject(fake.Fault{Method: "Version", Answer: func(r any) any {
			r.(*runtimeapi.VersionResponse).RuntimeVersion = "2" // as after an upgrade
			return r
		}})
		f.Up()
		time.Sleep(6 * time.Second)
		if got := runtime(); !got.Ready || m.Health().Err != nil || m.Health().Version.GetRuntimeVersion() != "2" {
			t.Errorf("after the runtime came back: %+v, %v, version %v", got, m.Health().Err, m.Health().Version)
		}

		f.SetNetwork(false, "NetworkPluginNotReady", "no CNI configuration")
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := m.Health().Network(time.Now()); got.Reason != "NetworkPluginNotReady" {
			t.Errorf("without a network: %+v", got)
		}

		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// With a short period, as in a cluster, the monitor soon notices that the network is not ready.
func TestMonitorChecksEveryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake.New(t)
		var shown answers
		m := cri.NewMonitor(f.Client(cri.Options{}), cri.MonitorOptions{Period: 5 * time.Second, Conditions: &shown},
			slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(11 * time.Second)
		f.SetNetwork(false, "NetworkPluginNotReady", "no CNI configuration")
		time.Sleep(4100 * time.Millisecond)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
		var networks []bool
		for _, answer := range shown {
			h := cri.Health{}.Observe(time.Now(), answer, nil)
			networks = append(networks, h.Network(time.Now()).Ready)
		}
		if diff := cmp.Diff([]bool{true, true, true, false}, networks); diff != "" {
			t.Errorf("network ready at each check (-want +got):\n%s", diff)
		}
	})
}

func TestAwaitNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake.New(t)
		m := cri.NewMonitor(f.Client(cri.Options{}), cri.MonitorOptions{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		f.SetNetwork(false, "NetworkPluginNotReady", "no CNI configuration")
		reported := make(chan string, 10)
		await := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { done <- m.AwaitNetwork(ctx, func(c cri.Condition) { reported <- c.Message }) }()
			synctest.Wait()
			return done
		}
		waits := await(ctx)
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		gone, leave := context.WithCancel(ctx)
		left := await(gone)
		time.Sleep(10 * time.Second)
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("wait of a deleted pod: %v", err)
		}
		f.SetNetwork(true, "", "")
		began := time.Now()
		if err := <-waits; err != nil || time.Since(began) > time.Second {
			t.Errorf("%v, %v after the network became ready", err, time.Since(began))
		}
		for range 2 {
			if got := <-reported; got != "no CNI configuration" {
				t.Errorf("reported %q", got)
			}
		}
		f.Down()
		time.Sleep(time.Minute)
		if err := <-await(ctx); err != nil {
			t.Errorf("wait while the runtime does not answer: %v", err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

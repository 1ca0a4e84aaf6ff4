package pleg

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest/fake"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
)

const image = "example.com/workload:1"

type bench struct {
	*fake.Runtime
	pleg   *PLEG
	client *cri.Client
}

// run calls body with a PLEG that has synced with a fake runtime, in a synctest bubble.
func run(t *testing.T, prepare func(*fake.Runtime), body func(*testing.T, *bench)) {
	synctest.Test(t, func(t *testing.T) {
		f := fake.New(t)
		f.AddImage(image)
		prepare(f)
		client := f.Client(cri.Options{})
		p := New(Options{
			Runtime: client.Runtime, Table: observed.New(), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		<-p.table.Synced()
		synctest.Wait()
		body(t, &bench{Runtime: f, pleg: p, client: client})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func asIs(*fake.Runtime) {}

func (b *bench) pod(t *testing.T, uid string) (sandbox, container string) {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "p-" + uid, Namespace: "default", Uid: uid},
		Labels:       map[string]string{pod.LabelPodUID: uid},
		LogDirectory: t.TempDir(),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}
	s, err := b.client.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.client.Runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.PodSandboxId, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: image},
			Args:    []string{"sleep"},
			LogPath: "app.log",
			Labels:  map[string]string{pod.LabelPodUID: uid, pod.LabelContainerName: "app"},
			Annotations: map[string]string{pod.AnnotationRestartCount: "3", pod.AnnotationHash: "abc",
				pod.AnnotationBackoff:          "20s",
				pod.AnnotationTerminationGrace: "7", pod.AnnotationTerminationMessagePolicy: "FallbackToLogsOnError"},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Runtime.StartContainer(t.Context(),
		&runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return s.PodSandboxId, c.ContainerId
}

func (b *bench) app(uid types.UID) pod.ContainerStatus {
	c, _ := b.pleg.Observed(uid).Container("app")
	return c
}

func TestEventsKeepTheTable(t *testing.T) {
	run(t, asIs, func(t *testing.T, b *bench) {
		_, id := b.pod(t, "u1")
		synctest.Wait()
		got := b.app("u1")
		want := pod.ContainerStatus{ID: id, Name: "app", State: pod.StateRunning, Hash: "abc", RestartCount: 3,
			Backoff: 20 * time.Second, TerminationFromLogs: true, TerminationGrace: new(int64(7)),
			Image: image, SandboxID: got.SandboxID, CreatedAt: got.CreatedAt, StartedAt: got.StartedAt,
			ImageID: got.ImageID, LogPath: got.LogPath}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("container (-want +got):\n%s", diff)
		}
		b.Exit(id, 3, "Error")
		synctest.Wait()
		if got := b.app("u1"); got.State != pod.StateExited || got.ExitCode != 3 {
			t.Errorf("after its end the container is %v with code %d", got.State, got.ExitCode)
		}
	})
}

// A broken stream has lost events. The relist that follows finds the changes, and the stream is opened again.
func TestBrokenStreamIsAudited(t *testing.T) {
	run(t, asIs, func(t *testing.T, b *bench) {
		_, id := b.pod(t, "u1")
		synctest.Wait()
		b.DropEvents()
		b.Exit(id, 1, "Error")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := b.app("u1"); got.State != pod.StateExited {
			t.Errorf("a second later the container is %v", got.State)
		}
	})
}

func TestRuntimeWithoutEventsIsPolled(t *testing.T) {
	run(t, func(f *fake.Runtime) {
		f.Inject(fake.Unimplemented("GetContainerEvents"))
	}, func(t *testing.T, b *bench) {
		b.pod(t, "u1")
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if got := b.app("u1"); got.State != pod.StateRunning {
			t.Errorf("after one period the container is %v", got.State)
		}
	})
}

// An idle node makes two list calls in five minutes and no other calls.
func TestIdleCost(t *testing.T) {
	run(t, asIs, func(t *testing.T, b *bench) {
		for _, uid := range []string{"u1", "u2", "u3"} {
			b.pod(t, uid)
		}
		time.Sleep(2 * opening) // the relist after the stream has opened
		before := len(b.Calls())
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(b.Calls()) - before; n < 20 || n > 24 {
			t.Errorf("an idle hour made %d calls, want 20 to 24", n)
		}
	})
}

// A runtime sends no events before it has opened the stream, and does not say when it has.
func TestOpenedStreamIsAudited(t *testing.T) {
	run(t, func(f *fake.Runtime) {
		f.Inject(fake.Fault{Method: "GetContainerEvents", Delay: time.Second / 2})
	}, func(t *testing.T, b *bench) {
		b.pod(t, "u1")
		time.Sleep(2 * time.Second)
		if got := b.app("u1"); got.State != pod.StateRunning {
			t.Errorf("the container is %v", got.State)
		}
	})
}

// A reading that fails is repeated before the next relist would come, and ever less often while it fails again.
func TestFailedReadingIsRepeated(t *testing.T) {
	run(t, asIs, func(t *testing.T, b *bench) {
		_, id := b.pod(t, "u1")
		time.Sleep(2 * opening)
		remove := b.Inject(fake.Fault{Method: "ContainerStatus", Err: status.Error(codes.Internal, "broken")})
		b.Exit(id, 3, "Error")
		before := len(b.Calls("ContainerStatus"))
		time.Sleep(10 * time.Minute)
		if n := len(b.Calls("ContainerStatus")) - before; n < 15 || n > 25 {
			t.Errorf("the reading was tried %d times in ten minutes, want 15 to 25", n)
		}
		remove()
		time.Sleep(2 * latestRetry)
		if got := b.app("u1"); got.State != pod.StateExited {
			t.Errorf("the container is %v", got.State)
		}
	})
}

func TestFailedStartIsShownOnceItIsJudged(t *testing.T) {
	p := New(Options{Table: observed.New()})
	judged := p.Starting("c")
	failed := pod.ContainerStatus{ID: "c", State: pod.StateExited}
	ran, other := failed, failed
	ran.StartedAt, other.ID = time.Unix(1, 0), "d"
	for status, want := range map[*pod.ContainerStatus]pod.ContainerState{
		&failed: pod.StateCreated, &ran: pod.StateExited, &other: pod.StateExited,
	} {
		if got := p.shown(*status).State; got != want {
			t.Errorf("%+v: shown as %s, want %s", status, got, want)
		}
	}
	if judged(); p.shown(failed).State != pod.StateExited {
		t.Error("hidden after it was judged")
	}
}

func TestStuckPodDelaysNoOther(t *testing.T) {
	run(t, asIs, func(t *testing.T, b *bench) {
		stuck, _ := b.pod(t, "u1")
		b.Inject(fake.Fault{Method: "PodSandboxStatus", Match: func(req any) bool {
			return req.(*runtimeapi.PodSandboxStatusRequest).PodSandboxId == stuck
		}, Hang: true})
		b.KillSandbox(stuck)
		b.pod(t, "u2")
		if err := b.pleg.Refresh(t.Context(), "u2"); err != nil {
			t.Fatal(err)
		}
		if got := b.app("u2"); got.State != pod.StateRunning {
			t.Errorf("the other pod's container is %v", got.State)
		}
	})
}

func TestRemovedPodLeavesTheTable(t *testing.T) {
	run(t, asIs, func(t *testing.T, b *bench) {
		s, _ := b.pod(t, "u1")
		if _, err := b.client.Runtime.RemovePodSandbox(t.Context(),
			&runtimeapi.RemovePodSandboxRequest{PodSandboxId: s}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if o := b.pleg.Observed("u1"); o != nil {
			t.Errorf("observed is still %+v", o)
		}
	})
}

// An event does not cause a reading if a later reading has begun since. One that follows in that reading does, also
// while the goroutine of the first event still waits.
func TestEventBeforeAReadingCausesNone(t *testing.T) {
	for name, test := range map[string]struct{ again, want int }{"before": {0, 2}, "in it": {1, 3}} {
		t.Run(name, func(t *testing.T) {
			run(t, asIs, func(t *testing.T, b *bench) {
				b.pod(t, "u1")
				time.Sleep(2 * opening) // the relist after the stream has opened
				b.Inject(fake.Fault{Method: "ListContainers", Delay: 100 * time.Millisecond})
				before := len(b.Calls("ListContainers"))
				for range 2 { // the second one waits for the first
					go func() {
						if err := b.pleg.Refresh(t.Context(), "u1"); err != nil {
							t.Error(err)
						}
					}()
					synctest.Wait()
				}
				b.pleg.mark(t.Context(), "u1")
				time.Sleep(150 * time.Millisecond)
				for range test.again {
					b.pleg.mark(t.Context(), "u1")
				}
				time.Sleep(time.Second)
				if n := len(b.Calls("ListContainers")) - before; n != test.want {
					t.Errorf("two readings and an event between them made %d calls, want %d", n, test.want)
				}
			})
		})
	}
}

// A reading that fails answers no event.
func TestEventOutlivesAReadingThatFails(t *testing.T) {
	run(t, asIs, func(t *testing.T, b *bench) {
		_, id := b.pod(t, "u1")
		synctest.Wait()
		remove := b.Inject(fake.Fault{Method: "ListContainers", Delay: 100 * time.Millisecond,
			Err: status.Error(codes.Internal, "broken")})
		for range 2 { // the second one waits for the first
			go func() {
				if b.pleg.Refresh(t.Context(), "u1") == nil {
					t.Error("a reading did not fail")
				}
			}()
			synctest.Wait()
		}
		b.Exit(id, 3, "Error") // its event waits for both
		time.Sleep(150 * time.Millisecond)
		remove()
		time.Sleep(100 * time.Millisecond)
		if got := b.app("u1"); got.State != pod.StateExited {
			t.Errorf("the container is %v", got.State)
		}
	})
}

// The events of a pod with many containers are answered by fewer readings, which leave CPUs to other pods. Those of a
// pod with few are answered at once.
func TestReadingsOfAPodWithManyContainersRest(t *testing.T) {
	for name, test := range map[string]struct{ containers, soon, late int }{"many": {17, 1, 2}, "few": {16, 2, 2}} {
		t.Run(name, func(t *testing.T) {
			run(t, asIs, func(t *testing.T, b *bench) {
				b.pod(t, "u1")
				synctest.Wait()
				b.Inject(fake.Fault{Method: "ListContainers", Delay: 100 * time.Millisecond, Answer: func(all any) any {
					list, _ := all.(*runtimeapi.ListContainersResponse)
					list.Containers = slices.Repeat(list.Containers, test.containers)
					return list
				}})
				before := len(b.Calls("ListContainers"))
				b.pleg.mark(t.Context(), "u1")
				time.Sleep(110 * time.Millisecond)
				b.pleg.mark(t.Context(), "u1")
				for at, want := range []int{test.soon, test.late} {
					time.Sleep(70 * time.Millisecond)
					if n := len(b.Calls("ListContainers")) - before; n != want {
						t.Errorf("look %d: two events made %d calls, want %d", at, n, want)
					}
				}
				time.Sleep(time.Second)
			})
		})
	}
}

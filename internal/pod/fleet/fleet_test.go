package fleet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/worker"
)

// node has room for one pod at a time.
type node struct {
	held          types.UID     // may be wanted by a manifest that cannot be read
	wants         chan struct{} // see WantsChanged
	fleet         *Fleet
	desired       *store.Table[types.UID, *pod.Pod]
	observed      *observed.Table
	desiredSynced chan struct{}
	// allocate, if set, returns the version of a running pod that the node allocates.
	allocate func(*pod.Pod) *pod.Pod
	// judge, if set, replaces the admission that admits one pod at a time.
	judge   func(*pod.Pod, []Other) Verdict
	changed func(types.UID)
	ahead   func(context.Context, *pod.Pod)
	aside   time.Time // when the next try of every pod may begin that has not recovered

	mu        sync.Mutex
	log       []string
	recovered []types.UID
}

func (n *node) say(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, what)
}

func (n *node) said() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.log)
}

func (n *node) Admit(p *pod.Pod, others []Other) Verdict {
	if n.judge != nil {
		return n.judge(p, others)
	}
	switch {
	case p.Labels["bad"] != "":
		return Verdict{Reject: true, Reason: "NodeAffinity", Message: "never here"}
	case len(others) > 0:
		return Verdict{Reason: "waiting for " + others[0].Pod.Name}
	}
	return Verdict{Admit: true}
}

func (n *node) Allocate(p *pod.Pod, _ []Other) *pod.Pod {
	if n.allocate == nil {
		return p
	}
	return n.allocate(p)
}

func (n *node) MayWant(o *pod.Observed) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return o.UID == n.held
}

func (n *node) WantsChanged() <-chan struct{} { return n.wants }

func (n *node) Pods() ([]types.UID, error) { return []types.UID{"left"}, nil }

func (n *node) Publish(uid types.UID) {
	if n.changed != nil {
		n.changed(uid)
	}
}

func (n *node) PublishNow(uid types.UID) { n.Publish(uid) }

func (n *node) Panicked(*corev1.Pod, string, *guard.Panic) time.Time { return time.Time{} }

func (n *node) Until(uid types.UID) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.recovered, uid) {
		return time.Time{}
	}
	return n.aside
}

func (n *node) Recovered(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recovered = append(n.recovered, uid)
}

func (n *node) Prefetch(ctx context.Context, p *pod.Pod) {
	if n.ahead != nil {
		n.ahead(ctx, p)
	}
}

func (n *node) Observed(uid types.UID) *pod.Observed                         { return n.observed.Observed(uid) }
func (n *node) Event(corev1.ObjectReference, string, string, string, ...any) {}
func (n *node) Refresh(context.Context, types.UID) error                     { return nil }
func (n *node) Plan(types.UID) map[string]plan.Probes                        { return nil }
func (n *node) Kept(types.UID) corev1.PodStatus                              { return corev1.PodStatus{} }
func (n *node) Restarts(types.UID) map[string]bool                           { return nil }
func (n *node) Context(ctx context.Context, _ types.UID) context.Context     { return ctx }

func (n *node) Stir() {}

func run(t *testing.T, body func(*testing.T, *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{desired: store.New[types.UID, *pod.Pod](), observed: observed.New(),
			desiredSynced: make(chan struct{}), wants: make(chan struct{}, 1)}
		n.observed.MarkSynced()
		slow := worker.Step{Name: "step",
			Setup: func(_ context.Context, r *worker.Run) error { n.say("+" + r.Pod.Name); return nil },
			Teardown: func(_ context.Context, r *worker.Run) error {
				time.Sleep(time.Second)
				n.say("-" + r.Pod.Name)
				n.observed.Delete(r.Pod.UID)
				return nil
			}}
		act := slow
		act.Name, act.Phase, act.Setup = "act", worker.Act, nil
		n.fleet = New(time.Now, slog.New(slog.DiscardHandler))
		parts := Parts{
			Desired: n.desired, Observed: n.observed, DesiredSynced: n.desiredSynced,
			Admission: n, Leftovers: n, Manifests: n, Prefetcher: n, Statuses: n, Asides: n, Idle: n,
			Worker: worker.Options{
				Steps: []worker.Step{slow, act}, Observer: n, Probes: n, Statuses: n, Resizes: n, Timelines: n,
				Events: n, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.fleet.Run(ctx, parts) }()
		body(t, n)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func (n *node) want(name string, labels map[string]string) {
	n.desired.Put(types.UID(name), &pod.Pod{Seen: time.Now(), Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: labels}}})
	synctest.Wait()
	time.Sleep(time.Millisecond) // the next pod is younger
}

func (n *node) verdict(name string) Verdict {
	m, _ := n.fleet.Member(types.UID(name))
	return m.Verdict
}

func TestNotYetUntilTheOtherHasEnded(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.want("a", nil)
		n.want("b", nil)
		if diff := cmp.Diff(Verdict{Reason: "waiting for a"}, n.verdict("b")); diff != "" {
			t.Errorf("b's verdict (-want +got):\n%s", diff)
		}
		n.desired.Delete("a")
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"+a", "-a", "-a", "+b"}, n.said()); diff != "" {
			t.Errorf("the node's life (-want +got):\n%s", diff)
		}
		if _, ok := n.fleet.Member("a"); ok {
			t.Error("a is still a member")
		}
	})
}

func TestRejectedUntilItsManifestChanges(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.want("a", map[string]string{"bad": "yes"})
		if diff := cmp.Diff(Verdict{Reject: true, Reason: "NodeAffinity", Message: "never here"},
			n.verdict("a")); diff != "" {
			t.Errorf("verdict (-want +got):\n%s", diff)
		}
		n.want("a", nil)
		if !n.verdict("a").Admit {
			t.Error("the mended pod was not admitted")
		}
	})
}

func TestOrderOfAdmission(t *testing.T) {
	at := func(name string, minute int, priority int32) *pod.Pod {
		return &pod.Pod{Seen: time.Unix(int64(60*minute), 0), Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Priority: &priority}}}
	}
	pods := []*pod.Pod{at("young", 3, 0), at("old-b", 1, 0), at("old-a", 1, 0), at("important", 5, 1000),
		at("runs", 9, 0)}
	slices.SortFunc(pods, func(a, b *pod.Pod) int { return compare(a, a.Name == "runs", b, b.Name == "runs") })
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"runs", "important", "old-a", "old-b", "young"}, names); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// Resources of ending pods are reserved for the pod that they end for. For the pods after it, that pod counts as a
// holder.
func TestReserved(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		var beside []string
		n.judge = func(p *pod.Pod, others []Other) Verdict {
			if p.Name != "critical" && p.Name != "late" {
				return Verdict{Admit: true}
			}
			var names []string
			for _, o := range others {
				names = append(names, o.Pod.Name)
			}
			beside = append(beside, p.Name+" beside "+strings.Join(names, " "))
			return Verdict{Reserve: p.Name == "critical"}
		}
		n.want("b", nil)
		n.want("a", nil)
		n.want("critical", nil)
		beside = nil
		n.want("late", nil)
		if diff := cmp.Diff([]string{"critical beside a b", "late beside a b critical"}, beside[:2]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// The fleet repeats admission at the time Again, and ignores an Again in the past.
func TestAsksAgainWhenItIsTime(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		began, asked := time.Now(), []time.Duration(nil)
		n.judge = func(*pod.Pod, []Other) Verdict {
			asked = append(asked, time.Since(began))
			return Verdict{Again: began.Add(time.Second)}
		}
		n.want("a", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(asked) < 2 || asked[len(asked)-1] != time.Second || asked[len(asked)-2] == time.Second {
			t.Errorf("asked after %v", asked)
		}
	})
}

// A pod that an earlier agent started and that is rejected now ends. It stays a member, so that its status shows the
// reason.
func TestRejectedWhileItRuns(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.observed.Put("a", &pod.Observed{UID: "a", Sandboxes: []pod.SandboxStatus{{ID: "s", Ready: true}}})
		n.want("a", map[string]string{"bad": "yes"})
		time.Sleep(time.Minute)
		m, _ := n.fleet.Member("a")
		want := &pod.Stop{Reason: "NodeAffinity", Message: "Pod was rejected: never here"}
		if diff := cmp.Diff(want, m.State.Stop, cmpopts.IgnoreFields(pod.Stop{}, "At")); diff != "" ||
			m.State.Stage != worker.Terminated {
			t.Errorf("it is %v (-want +got):\n%s", m.State.Stage, diff)
		}
	})
}

// A pod that has ended before this agent started holds no resources, from the first moment on.
func TestEndedPodsHoldNothing(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.judge = func(p *pod.Pod, others []Other) Verdict {
			return Verdict{Admit: len(others) == 0, Ended: p.Name == "over"}
		}
		n.want("over", nil)
		n.want("a", nil)
		if got := n.fleet.Pods(); len(got) != 1 || got[0].Name != "a" {
			t.Errorf("holders are %v", got)
		}
	})
}

func TestEndsBy(t *testing.T) {
	at := time.Unix(100, 0)
	p := func(grace *int64) *pod.Pod {
		return &pod.Pod{Pod: &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: grace}}}
	}
	for name, test := range map[string]struct {
		pod  *pod.Pod
		stop *pod.Stop
		want time.Time
	}{
		"it goes on":      {p(nil), nil, time.Time{}},
		"nothing is said": {p(nil), &pod.Stop{At: at}, at.Add(30 * time.Second)},
		"its own grace":   {p(new(int64(7))), &pod.Stop{At: at}, at.Add(7 * time.Second)},
		"the stop's":      {p(new(int64(7))), &pod.Stop{At: at, Grace: new(time.Second)}, at.Add(time.Second)},
	} {
		if got := endsBy(test.pod, test.stop); !got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// An edited pod keeps its previous version until the node allocates the new one. The fleet tries again whenever
// something changes.
func TestAllocation(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.want("a", nil)
		was, _ := n.desired.Get("a")
		free := false
		n.allocate = func(want *pod.Pod) *pod.Pod {
			if free {
				return want
			}
			return was
		}
		n.want("a", map[string]string{"size": "large"})
		wanted, _ := n.desired.Get("a")
		if m, _ := n.fleet.Member("a"); m.Pod != was || m.Desired != wanted || m.State.Pod != was {
			t.Errorf("while it waits: runs %v, wanted %v", m.Pod.Labels, m.Desired.Labels)
		}
		free = true
		n.fleet.Reconsider()
		synctest.Wait()
		if m, _ := n.fleet.Member("a"); m.Pod != wanted || m.State.Pod != wanted {
			t.Errorf("when it was allocated: runs %v", m.Pod.Labels)
		}
		if diff := cmp.Diff([]string{"+a", "+a"}, n.said()); diff != "" {
			t.Errorf("the node's life (-want +got):\n%s", diff)
		}
	})
}

// Pods in the runtime that no source wants are ended, but only once all sources have delivered their pods.
func TestOrphansEndWhenTheSourcesAreKnown(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.observed.Put("lost", &pod.Observed{UID: "lost", Name: "lost"})
		time.Sleep(time.Minute)
		if _, ok := n.fleet.Member("lost"); ok {
			t.Fatal("ended before the sources were read")
		}
		select {
		case <-n.fleet.Settled():
			t.Error("settled before the sources were read")
		default:
		}
		close(n.desiredSynced)
		<-n.fleet.Settled()
		if _, ok := n.fleet.Member("lost"); !ok {
			t.Error("settled without a pod that is there")
		}
		time.Sleep(time.Minute)
		said := n.said()
		slices.Sort(said)
		if diff := cmp.Diff([]string{"-left", "-left", "-lost", "-lost"}, said); diff != "" {
			t.Errorf("the node's life (-want +got):\n%s", diff)
		}
	})
}

// A pod does not start beside a pod of its name that an earlier agent has left, although the sources are not read yet.
// A static pod ends the earlier one, because the sources may need it.
func TestPodWaitsForThePodOfItsNameThatIsLeft(t *testing.T) {
	const earlier, later = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	for name, test := range map[string]struct {
		left   types.UID
		source pod.Source
		unread []string // what happens while not all sources are read
	}{
		"static pods":       {earlier, pod.SourceFile, []string{"-web", "-web", "+web"}},
		"an applied pod":    {earlier, pod.SourceLocal, nil},
		"the API's is left": {"1-2-3", pod.SourceFile, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, n *node) {
				n.observed.Put(test.left, &pod.Observed{UID: test.left, Namespace: "default", Name: "web"})
				n.desired.Put(later, &pod.Pod{Seen: time.Now(), Source: test.source, Pod: &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: later,
						Annotations: map[string]string{pod.AnnotationConfigSource: string(test.source)}}}})
				time.Sleep(time.Minute)
				if diff := cmp.Diff(test.unread, n.said()); diff != "" {
					t.Errorf("before the sources are read (-want +got):\n%s", diff)
				}
				close(n.desiredSynced)
				time.Sleep(time.Minute)
				said := slices.DeleteFunc(n.said(), func(what string) bool { return what == "-left" })
				if diff := cmp.Diff([]string{"-web", "-web", "+web"}, said); diff != "" {
					t.Errorf("the node's life (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A pod that no source wants runs on while a manifest that cannot be read may want it.
func TestPodsOfUnreadableManifestsRunOn(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.held = "lost"
		n.observed.Put("lost", &pod.Observed{UID: "lost", Name: "lost"})
		close(n.desiredSynced)
		<-n.fleet.Settled()
		n.observed.Put("lost", &pod.Observed{UID: "lost", Name: "lost", At: time.Now()})
		time.Sleep(time.Minute)
		if m, ok := n.fleet.Member("lost"); ok {
			t.Errorf("it ends although its manifest cannot be read: %+v", m)
		}
		n.mu.Lock()
		n.held = ""
		n.mu.Unlock()
		n.wants <- struct{}{}
		synctest.Wait()
		if _, ok := n.fleet.Member("lost"); !ok {
			t.Error("it runs on although no manifest wants it")
		}
		time.Sleep(time.Minute)
	})
}

// A pod that is wanted again while it ends starts afresh when nothing of it is left.
func TestWantedAgainWhileItEnds(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.want("a", nil)
		n.desired.Delete("a")
		synctest.Wait()
		n.want("a", nil)
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"+a", "-a", "-a", "+a"}, n.said()); diff != "" {
			t.Errorf("the node's life (-want +got):\n%s", diff)
		}
	})
}

// Ahead runs once for each version of a waiting pod. Its context ends when the version changes or no source wants the
// pod.
func TestAheadOfAdmission(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.ahead = func(ctx context.Context, p *pod.Pod) {
			n.say("ahead " + p.Name + p.Labels["version"])
			<-ctx.Done()
			n.say("no more " + p.Name + p.Labels["version"])
		}
		n.want("a", nil)
		n.want("b", nil)
		n.fleet.Reconsider()
		synctest.Wait()
		n.want("b", map[string]string{"version": "2"})
		n.want("c", nil)
		n.want("bad", map[string]string{"bad": "yes"})
		n.desired.Delete("c")
		synctest.Wait()
		n.desired.Delete("a") // b continues: its Ahead is not cancelled
		time.Sleep(5 * time.Second)
		want := []string{"+a", "+b", "-a", "-a", "ahead b", "ahead b2", "ahead c", "no more b", "no more c"}
		if got := n.said(); !slices.Equal(want, slices.Sorted(slices.Values(got))) ||
			slices.Index(got, "ahead b") > slices.Index(got, "ahead b2") {
			t.Errorf("the node's life was %q", got)
		}
	})
}

// Changed reports a pod that is wanted again while it ends as gone, before it reports the new pod.
func TestPodThatComesBackIsForgottenFirst(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.want("a", nil)
		var mu sync.Mutex // Changed is called from many goroutines
		var known []bool
		n.changed = func(uid types.UID) {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := n.fleet.Member(uid); len(known) == 0 || known[len(known)-1] != ok {
				known = append(known, ok)
			}
		}
		n.desired.Delete("a")
		synctest.Wait()
		n.want("a", nil)
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]bool{true, false, true}, known); diff != "" {
			t.Errorf("is it a member (-want +got):\n%s", diff)
		}
	})
}

// A pod that is set aside is not admitted before its time. It can be removed meanwhile, also if it runs.
func TestPodSetAsideWaitsForItsTime(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.aside = time.Now().Add(time.Minute)
		n.api("web", plain)
		n.api("runs", plain)
		n.observed.Put("runs", &pod.Observed{UID: "runs", Name: "runs", Namespace: "default",
			Sandboxes: []pod.SandboxStatus{{ID: "s", Ready: true}}})
		close(n.desiredSynced)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if got := n.said(); slices.Contains(got, "+web") || slices.Contains(got, "-runs") {
			t.Fatalf("the pods before their time: %v", got)
		}
		n.desired.Delete("runs")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := n.said(); !slices.Contains(got, "-runs") || !slices.Contains(got, "+web") {
			t.Errorf("after the removal and the delay: %v", got)
		}
	})
}

package fleet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/plan"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/store"
	"github.com/berth-run/berth/internal/worker"
)

// node has room for one pod at a time.
type node struct {
	fleet         *Fleet
	desired       *store.Table[types.UID, *pod.Pod]
	observed      *store.Table[types.UID, *pod.Observed]
	desiredSynced chan struct{}
	// allocate, when it is set, decides what a pod becomes that runs already.
	allocate func(*pod.Pod) *pod.Pod
	changed  func(types.UID)
	ahead    func(context.Context, *pod.Pod)
	mu       sync.Mutex
	log      []string
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

func (n *node) admit(p *pod.Pod, others []Other) Verdict {
	switch {
	case p.Labels["bad"] != "":
		return Verdict{Reject: true, Reason: "NodeAffinity", Message: "never here"}
	case len(others) > 0:
		return Verdict{Reason: "waiting for " + others[0].Pod.Name}
	}
	return Verdict{Admit: true}
}

func run(t *testing.T, body func(*testing.T, *node)) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{desired: store.New[types.UID, *pod.Pod](), observed: store.New[types.UID, *pod.Observed](), desiredSynced: make(chan struct{})}
		synced := make(chan struct{})
		close(synced)
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
		n.fleet = New(Options{
			Desired: n.desired, Observed: n.observed, DesiredSynced: n.desiredSynced, ObservedSynced: synced,
			Leftovers: func() ([]types.UID, error) { return []types.UID{"left"}, nil },
			Allocate: func(p *pod.Pod, _ []Other) *pod.Pod {
				if n.allocate == nil {
					return p
				}
				return n.allocate(p)
			},
			Admit: n.admit,
			Changed: func(uid types.UID) {
				if n.changed != nil {
					n.changed(uid)
				}
			},
			Ahead: func(ctx context.Context, p *pod.Pod) {
				if n.ahead != nil {
					n.ahead(ctx, p)
				}
			},
			Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Worker: worker.Options{
				Steps:    []worker.Step{slow, act},
				Observed: func(uid types.UID) *pod.Observed { o, _ := n.observed.Get(uid); return o },
				Refresh:  func(context.Context, types.UID) error { return nil },
				Probes:   func(types.UID) map[string]plan.Probes { return nil },
				Hash:     func(*corev1.Pod) map[string]string { return nil },
				Trace:    func(ctx context.Context, _ types.UID) context.Context { return ctx },
				Now:      time.Now, Log: slog.New(slog.DiscardHandler),
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.fleet.Run(ctx) }()
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
		if diff := cmp.Diff(Verdict{Reject: true, Reason: "NodeAffinity", Message: "never here"}, n.verdict("a")); diff != "" {
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
	pods := []*pod.Pod{at("young", 3, 0), at("old-b", 1, 0), at("old-a", 1, 0), at("important", 5, 1000), at("runs", 9, 0)}
	slices.SortFunc(pods, func(a, b *pod.Pod) int { return compare(a, a.Name == "runs", b, b.Name == "runs") })
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"runs", "important", "old-a", "old-b", "young"}, names); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// A pod that is edited runs as it was until the node allocates what it wants,
// which is asked again when something changes.
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

// What the runtime shows and nobody wants is ended, but only once all sources
// have been heard.
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

// A pod that is wanted again while it ends begins anew when nothing of it is left.
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

// What can be done already for a pod that waits is done once, anew for another
// version of it, and given up when nobody wants it any more.
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
		n.desired.Delete("a") // b goes on with what was begun
		time.Sleep(5 * time.Second)
		want := []string{"+a", "+b", "-a", "-a", "ahead b", "ahead b2", "ahead c", "no more b", "no more c"}
		if got := n.said(); !slices.Equal(want, slices.Sorted(slices.Values(got))) || slices.Index(got, "ahead b") > slices.Index(got, "ahead b2") {
			t.Errorf("the node's life was %q", got)
		}
	})
}

// A pod that is wanted again while it ends is told to be gone before it is new.
func TestPodThatComesBackIsForgottenFirst(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.want("a", nil)
		var mu sync.Mutex // it is told from many goroutines
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

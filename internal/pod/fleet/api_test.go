package fleet

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

// api puts another version of a pod into the desired table, as the source for the API server does.
func (n *node) api(name string, change func(*corev1.Pod)) {
	p := &pod.Pod{Seen: time.Now(), Source: pod.SourceAPI}
	if was, ok := n.desired.Get(types.UID(name)); ok {
		p.Seen, p.Pod = was.Seen, was.DeepCopy()
	} else {
		p.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	}
	change(p.Pod)
	n.desired.Put(p.UID, p)
	synctest.Wait()
	time.Sleep(time.Millisecond) // the next pod is younger
}

func plain(*corev1.Pod) {}

func deleted(grace int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Duration(grace) * time.Second)}
		p.DeletionGracePeriodSeconds = &grace
	}
}

func ended(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

// A pod that the API server deletes ends, in whatever state it is. It is Gone when nothing of it is left, and stops
// being a member when the API server has removed it.
func TestDeletedInTheAPI(t *testing.T) {
	for name, test := range map[string]struct {
		before func(n *node)
		life   []string
		reason pod.StopReason
	}{
		"it runs": {func(n *node) { n.api("a", plain) }, []string{"+a", "-a", "-a"}, "Deleted"},
		"it waits": {func(n *node) {
			n.judge = func(*pod.Pod, []Other) Verdict { return Verdict{} }
			n.api("a", plain)
		}, []string{"-a", "-a"}, "Deleted"},
		"it was rejected": {func(n *node) {
			n.api("a", func(p *corev1.Pod) { p.Labels = map[string]string{"bad": "yes"} })
		}, []string{"-a", "-a"}, "NodeAffinity"},
		"it ended": {func(n *node) {
			n.api("a", ended(corev1.PodSucceeded))
		}, []string{"-a", "-a", "-a", "-a"}, "Completed"},
		"new to the agent": {func(*node) {}, []string{"-a", "-a"}, "Deleted"},
		"an earlier agent's": {func(n *node) {
			n.observed.Put("a", &pod.Observed{UID: "a", Sandboxes: []pod.SandboxStatus{{ID: "s", Ready: true}}})
		}, []string{"-a", "-a"}, "Deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, n *node) {
				test.before(n)
				time.Sleep(time.Minute)
				n.api("a", deleted(7))
				if m, _ := n.fleet.Member("a"); m.Gone {
					t.Error("gone while it ends")
				}
				time.Sleep(time.Minute)
				m, ok := n.fleet.Member("a")
				if !ok || !m.Gone || m.State.Stage != worker.Terminated {
					t.Errorf("at its end: member %v, gone %v, stage %v", ok, m.Gone, m.State.Stage)
				}
				want := &pod.Stop{Reason: test.reason, Grace: new(7 * time.Second), Remove: true}
				if diff := cmp.Diff(want, m.State.Stop, cmpopts.IgnoreFields(pod.Stop{}, "At", "Message")); diff != "" {
					t.Errorf("it was stopped (-want +got):\n%s", diff)
				}
				n.api("a", ended(corev1.PodFailed)) // its last status
				n.fleet.Reconsider()
				time.Sleep(time.Minute)
				if got := n.fleet.Holders(); len(got) != 0 {
					t.Errorf("it holds %v", got)
				}
				if diff := cmp.Diff(test.life, n.said()); diff != "" {
					t.Errorf("life (-want +got):\n%s", diff)
				}
				n.desired.Delete("a")
				synctest.Wait()
				if _, ok := n.fleet.Member("a"); ok {
					t.Error("still a member")
				}
			})
		})
	}
}

// A shorter grace period applies to a pod that is ending already. A longer one does not.
func TestGraceShrinks(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.api("a", plain)
		n.api("a", deleted(30))
		n.api("a", deleted(0))
		n.api("a", deleted(60))
		if m, _ := n.fleet.Member("a"); m.State.Stop == nil || *m.State.Stop.Grace != 0 {
			t.Errorf("its stop is %+v", m.State.Stop)
		}
		time.Sleep(time.Minute)
	})
}

// A pod that the API server removes while it runs ends with its own grace period.
func TestDroppedByTheAPI(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.api("a", plain)
		n.desired.Delete("a")
		synctest.Wait()
		if m, ok := n.fleet.Member("a"); !ok || m.State.Stop == nil || m.State.Stop.Grace != nil ||
			!m.State.Stop.Remove {
			t.Errorf("member %v, stop %+v", ok, m.State.Stop)
		}
		time.Sleep(time.Minute)
		if _, ok := n.fleet.Member("a"); ok {
			t.Error("still a member")
		}
	})
}

// A new status or resource version replaces the desired pod but does not reach its worker. New labels do.
func TestReconcile(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.api("a", plain)
		n.api("a", func(p *corev1.Pod) {
			p.ResourceVersion = "2"
			p.Status.Phase = corev1.PodRunning
		})
		wanted, _ := n.desired.Get("a")
		if m, _ := n.fleet.Member("a"); m.Desired != wanted || m.Pod != wanted {
			t.Errorf("the fleet has version %s", m.Desired.ResourceVersion)
		}
		if diff := cmp.Diff([]string{"+a"}, n.said()); diff != "" {
			t.Errorf("for a status (-want +got):\n%s", diff)
		}
		n.api("a", func(p *corev1.Pod) { p.Labels = map[string]string{"tier": "web"} })
		if diff := cmp.Diff([]string{"+a", "+a"}, n.said()); diff != "" {
			t.Errorf("for a label (-want +got):\n%s", diff)
		}
	})
}

// A pod that the API server reports as ended is not started, only cleaned up after. If it runs, it ends.
func TestEndedInTheAPI(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.api("a", ended(corev1.PodFailed))
		time.Sleep(time.Minute)
		n.api("b", plain)
		n.api("b", ended(corev1.PodFailed))
		time.Sleep(time.Minute)
		for _, name := range []types.UID{"a", "b"} {
			if m, ok := n.fleet.Member(name); !ok || m.Gone || m.State.Stage != worker.Terminated {
				t.Errorf("%s: member %v, gone %v, stage %v", name, ok, m.Gone, m.State.Stage)
			}
		}
		if diff := cmp.Diff([]string{"-a", "-a", "+b", "-b", "-b"}, n.said()); diff != "" {
			t.Errorf("the node's life (-want +got):\n%s", diff)
		}
	})
}

// The rejection of a pod of the API server is final, even if the API server reports it back or a user changes the pod.
func TestRejectedForGood(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.api("a", func(p *corev1.Pod) { p.Labels = map[string]string{"bad": "yes"} })
		n.api("a", ended(corev1.PodFailed))
		n.api("a", func(p *corev1.Pod) { p.Labels = nil })
		time.Sleep(time.Minute)
		if m, _ := n.fleet.Member("a"); !m.Verdict.Reject || m.Working {
			t.Errorf("it is %+v", m)
		}
	})
}

// The fleet ends no pods until it has the first list of the API server.
func TestUnheardAPIEndsNothing(t *testing.T) {
	run(t, func(t *testing.T, n *node) {
		n.observed.Put("a", &pod.Observed{UID: "a", Sandboxes: []pod.SandboxStatus{{ID: "s", Ready: true}}})
		time.Sleep(time.Hour)
		n.api("a", plain)
		close(n.desiredSynced)
		<-n.fleet.Settled()
		if m, ok := n.fleet.Member("a"); !ok || m.Orphan || !m.Working || m.State.Stop != nil {
			t.Errorf("member %v, orphan %v, working %v, stop %+v", ok, m.Orphan, m.Working, m.State.Stop)
		}
	})
}

// The members stay sorted, also around a static pod with a fixed UID whose name changes.
func TestSorted(t *testing.T) {
	f := New(time.Now, slog.New(slog.DiscardHandler))
	members := map[string]*member{}
	for _, name := range []string{"c", "a", "d", "b"} {
		members[name] = &member{restored: true, pod: &pod.Pod{Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}}}
		f.add(members[name])
	}
	expect := func(what, want string) {
		t.Helper()
		got := ""
		for _, p := range f.Pods() {
			got += p.Name
		}
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("added", "abcd")
	members["a"].pod.Name = "e"
	expect("one has another name", "bcde")
	f.drop(members["a"])
	f.drop(members["c"])
	expect("dropped", "bd")
}

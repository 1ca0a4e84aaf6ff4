package publish

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/record/event"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// publisher sends the events of a recorder as node "n".
type publisher struct {
	*Publisher
	*testing.T
	stop func()
}

func publish(t *testing.T, o Options) publisher {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.Cluster(t).NodeConfig("n"))
	if err != nil {
		t.Fatal(err)
	}
	o.Client, o.Log = client, slog.New(slog.DiscardHandler)
	p := publisher{Publisher: New(o), T: t}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = p.Publisher.Run(ctx) }) // with the error of ctx
	p.stop = func() { cancel(); all.Wait() }
	t.Cleanup(p.stop)
	return p
}

// until waits for a state of the counters.
func (p publisher) until(what string, done func(Stats) bool) {
	p.Helper()
	eventually.Nothing(p, func() string {
		s := p.Stats()
		if done(s) {
			return ""
		}
		return fmt.Sprintf("%s: %+v", what, s)
	})
}

func ref(kind, namespace, name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: kind, APIVersion: "v1", Namespace: namespace, Name: name, UID: "u-1"}
}

// list returns the events of a namespace as "reason count message".
func list(t *testing.T, namespace string) []string {
	t.Helper()
	events, err := shared.Cluster(t).Client().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range events.Items {
		if e.Source.Host == "n" {
			all = append(all, fmt.Sprint(e.InvolvedObject.Kind, " ", e.Reason, " ", e.Count, " ", e.Message))
		}
	}
	slices.Sort(all)
	return all
}

func TestEventsReachTheAPI(t *testing.T) {
	cluster := shared.Cluster(t)
	namespace, path := cluster.Namespace(), filepath.Join(t.TempDir(), "sent.json")
	recorder := event.New(event.Options{Host: "n"})
	pod := ref("Pod", namespace, "web")
	recorder.Event(pod, corev1.EventTypeNormal, "Pulled", "before the node has joined")
	o := Options{Source: recorder, Path: path, Since: time.Now()}
	p := publish(t, o)
	recorder.Event(pod, corev1.EventTypeNormal, "Started", "started")
	recorder.Event(ref("Node", "", "n"), corev1.EventTypeNormal, "Starting", "starting")
	p.until("two events", func(s Stats) bool { return s.Created == 2 })
	for range 3 {
		recorder.Event(pod, corev1.EventTypeNormal, "Started", "started")
	}
	p.until("the repeats", func(s Stats) bool { return s.Patched == 1 && s.Waiting == 0 })
	p.stop()

	// Events are recorded while no publisher runs, and then while the API server is away.
	recorder.Event(pod, corev1.EventTypeNormal, "Started", "started")
	recorder.Event(pod, corev1.EventTypeWarning, "BackOff", "back-off")
	cluster.Disconnect()
	t.Cleanup(cluster.Connect)
	p = publish(t, o)
	p.until("a failure", func(s Stats) bool { return s.Failures > 0 })
	cluster.Connect()
	p.until("what has happened meanwhile", func(s Stats) bool {
		return s.Created == 1 && s.Patched == 1 && s.Waiting == 0
	})
	if diff := cmp.Diff([]string{"Pod BackOff 1 back-off", "Pod Started 5 started"}, list(t, namespace)); diff != "" {
		t.Errorf("events of the pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Node Starting 1 starting"}, list(t, metav1.NamespaceDefault)); diff != "" {
		t.Errorf("events of the node (-want +got):\n%s", diff)
	}
}

// A burst is spread over time and limited. A warning overtakes it.
func TestBurst(t *testing.T) {
	namespace := shared.Cluster(t).Namespace()
	recorder := event.New(event.Options{Host: "n"})
	p := publish(t, Options{Source: recorder, QPS: 10, Burst: 1, Max: 40, Since: time.Unix(0, 0)})
	for i := range 100 {
		recorder.Event(ref("Pod", namespace, fmt.Sprint("web-", i)), corev1.EventTypeNormal, "Started", "started")
	}
	p.until("a full queue", func(s Stats) bool { return s.Dropped > 0 })
	recorder.Event(ref("Pod", namespace, "web-0"), corev1.EventTypeWarning, "Failed", "failed")
	before := p.Stats().Created
	var all []string
	p.until("the warning", func(Stats) bool {
		all = list(t, namespace)
		return slices.Contains(all, "Pod Failed 1 failed")
	})
	if s := p.Stats(); s.Created > before+10 || s.Waiting > 40 || len(all) > 20 {
		t.Errorf("the warning has waited for %d others: %+v", len(all), s)
	}
}

// An event in a namespace that does not exist is refused, and delays no other.
func TestRefusedEvent(t *testing.T) {
	namespace := shared.Cluster(t).Namespace()
	recorder := event.New(event.Options{Host: "n"})
	p := publish(t, Options{Source: recorder, Since: time.Unix(0, 0)})
	recorder.Event(ref("Pod", "no-such-namespace", "web"), corev1.EventTypeWarning, "Failed", "failed")
	recorder.Event(ref("Pod", namespace, "web"), corev1.EventTypeNormal, "Started", "started")
	p.until("both", func(s Stats) bool { return s.Refused == 1 && s.Created == 1 && s.Waiting == 0 })
}

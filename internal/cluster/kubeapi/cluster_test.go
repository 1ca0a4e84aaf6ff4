package kubeapi_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/cluster/publish"
	"github.com/berth-run/berth/internal/cluster/report"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/record/event"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// identity is a node that has only the certificate of its kubeconfig. It can be replaced.
type identity struct{ replaced chan struct{} }

func (i identity) Certificate() *tls.Certificate { return nil }
func (i identity) Replaced() <-chan struct{}     { return i.replaced }

// connect returns a node's API with a timeout of one second for heartbeats.
func connect(t *testing.T, c *kubeapitest.Cluster, node string) *kubeapi.API {
	t.Helper()
	return connectAs(t, c, node, nil)
}

func connectAs(t *testing.T, c *kubeapitest.Cluster, node string, id kubeapi.Identity) *kubeapi.API {
	t.Helper()
	cluster := &config.Cluster{
		ContentType: "application/vnd.kubernetes.protobuf", Main: config.Rate{QPS: 50, Burst: 100},
		Statuses: config.Rate{QPS: 200, Burst: 400}, Events: config.Rate{QPS: 1, Burst: 1},
		Status: config.NodeStatus{UpdateFrequency: 10 * time.Second, LeaseDuration: time.Second},
	}
	a, err := kubeapi.Connect(kubeapi.Options{Base: c.NodeConfig(node), Cluster: cluster, Version: "test", Identity: id,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// beat sends a heartbeat. The server responds that the lease does not exist.
func beat(ctx context.Context, a *kubeapi.API, node string) error {
	_, err := a.Heartbeat.CoordinationV1().Leases("kube-node-lease").Get(ctx, node, metav1.GetOptions{})
	return err
}

func TestServerGoneAndBack(t *testing.T) {
	c := shared.Cluster(t)
	a := connect(t, c, "gone")
	for _, fault := range []struct {
		name        string
		begin, over func()
	}{
		{"cut off", c.Disconnect, c.Connect},
		{"hangs", func() { c.Pause(kubeapitest.APIServer) }, func() { c.Resume(kubeapitest.APIServer) }},
		{"killed", c.KillAPIServer, c.StartAPIServer},
	} {
		t.Run(fault.name, func(t *testing.T) {
			if err := beat(t.Context(), a, "gone"); !apierrors.IsNotFound(err) {
				t.Errorf("before: %v", err)
			}
			if s := a.Health.State(); s.Away() {
				t.Errorf("before: %+v", s)
			}
			fault.begin()
			began := time.Now()
			for apierrors.IsNotFound(beat(t.Context(), a,
				"gone")) { // a process may respond a little longer after its signal
			}
			if s := a.Health.State(); !s.Away() || s.Since.Before(began) {
				t.Errorf("while it lasts: %+v, since %v", s, began)
			}
			fault.over()
			if err := beat(t.Context(), a, "gone"); !apierrors.IsNotFound(err) {
				t.Errorf("after: %v", err)
			}
			if s := a.Health.State(); s.Away() {
				t.Errorf("after: %+v", s)
			}
		})
	}
}

// Requests under way fail when the client certificate was replaced, but Health does not change.
func TestAReplacedCertificateClosesConnections(t *testing.T) {
	c := shared.Cluster(t)
	id := identity{make(chan struct{})}
	a := connectAs(t, c, "closes", id)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	w, err := a.Main.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=closes"})
	if err != nil {
		t.Fatal(err)
	}
	id.replaced <- struct{}{}
	for range w.ResultChan() { // until it has ended
	}
	if s := a.Health.State(); s.Away() {
		t.Errorf("%+v", s)
	}
	if err := beat(t.Context(), a, "closes"); !apierrors.IsNotFound(err) {
		t.Errorf("the next request: %v", err)
	}
}

// A burst of events waits for its own rate limit, even if the server refuses the events. Pod statuses overtake it.
func TestEventsDelayNoStatus(t *testing.T) {
	const events, pods, states = 3000, 20, 5
	c := shared.Cluster(t)
	t.Cleanup(func() { c.Inject() })
	a := connect(t, c, "busy")
	recorder := event.New(event.Options{Host: "busy"})
	log := slog.New(slog.DiscardHandler)
	publisher := publish.New(publish.Options{Source: recorder, Client: a.Events, QPS: 10, Burst: 20, Max: events,
		Since: time.Now(), Log: log})
	statuses := report.New(report.Options{Client: a.Statuses, Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, run := range []func(context.Context) error{publisher.Run, statuses.Run} {
		running.Go(func() { _ = run(ctx) }) // until ctx ends
	}
	var all []*corev1.Pod
	namespace := c.Namespace()
	for i := range pods {
		p, err := c.Client().CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i)},
			Spec:       corev1.PodSpec{NodeName: "busy", Containers: []corev1.Container{{Name: "app", Image: "img"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	c.Inject(kubeapitest.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events")
		},
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, RetryAfter: 1,
	})
	for i := range events {
		recorder.Event(corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprint("other-", i)},
			corev1.EventTypeWarning, "Burst", "of many")
	}
	message := ""
	for _, refused := range []bool{true, false} {
		if !refused {
			c.Inject()
		}
		for range states {
			message += "."
			for _, p := range all {
				statuses.Set(report.Row{UID: p.UID, Pod: p,
					Status: corev1.PodStatus{Phase: corev1.PodRunning, Message: message}})
			}
			if err := statuses.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		list, err := c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			if p.Status.Message != message {
				t.Errorf("pod %s: status %q, want %q", p.Name, p.Status.Message, message)
			}
		}
		if s := publisher.Stats(); refused && s.Created > 0 || s.Waiting < events/2 {
			t.Errorf("refused %v: when the statuses are there, events: %+v", refused, s)
		}
	}
	eventually.True(t, "events are written after the statuses", func() bool { return publisher.Stats().Created > 0 })
}

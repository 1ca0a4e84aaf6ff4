package kubeapi_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/kubeapi"
	"github.com/berth-run/berth/internal/kubeapi/kubeapitest"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// connect is a node's API, whose heartbeats end after a second.
func connect(t *testing.T, c *kubeapitest.Cluster, node string) *kubeapi.API {
	t.Helper()
	cluster := &config.Cluster{
		ContentType: "application/vnd.kubernetes.protobuf", Main: config.Rate{QPS: 50, Burst: 100}, Statuses: config.Rate{QPS: 200, Burst: 400}, Events: config.Rate{QPS: 1, Burst: 1},
		Status: config.NodeStatus{UpdateFrequency: 10 * time.Second, LeaseDuration: time.Second},
	}
	a, err := kubeapi.Connect(kubeapi.Options{Base: c.NodeConfig(node), Cluster: cluster, Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// beat sends a heartbeat. The server knows no such lease, which is an answer.
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
		{"hangs", c.PauseAPIServer, c.ResumeAPIServer},
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
			for apierrors.IsNotFound(beat(t.Context(), a, "gone")) { // a process may do a little more after its signal
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

// What is under way when connections are closed fails, and says nothing about the server.
func TestCloseConnections(t *testing.T) {
	c := shared.Cluster(t)
	a := connect(t, c, "closes")
	w, err := a.Main.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=closes"})
	if err != nil {
		t.Fatal(err)
	}
	a.CloseConnections()
	for range w.ResultChan() { // until it has ended
	}
	if s := a.Health.State(); s.Away() {
		t.Errorf("%+v", s)
	}
	if err := beat(t.Context(), a, "closes"); !apierrors.IsNotFound(err) {
		t.Errorf("the next request: %v", err)
	}
}

// A burst of events waits for its own budget alone.
func TestEventsDelayNothing(t *testing.T) {
	c := shared.Cluster(t)
	a := connect(t, c, "busy")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = a.Events.CoreV1().Events("default").Get(ctx, "none", metav1.GetOptions{})
		}
	}()
	began := time.Now()
	for range 20 {
		if _, err := a.Statuses.CoreV1().Nodes().Get(t.Context(), "busy", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 10*time.Second { // 20 events take 19 s
		t.Errorf("20 requests took %v", took)
	}
	cancel()
	<-done
}

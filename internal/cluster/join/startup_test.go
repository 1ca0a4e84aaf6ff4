package join

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeNode is a Node object that is received, and ready a second later.
type fakeNode struct {
	node              *corev1.Node
	received, changed chan struct{}
}

func (x *fakeNode) Received() <-chan struct{} { return x.received }
func (x *fakeNode) Changed() <-chan struct{}  { return x.changed }
func (x *fakeNode) Node() *corev1.Node        { return x.node }

func TestStartupMeasuresANewNode(t *testing.T) {
	for name, c := range map[string]struct {
		created time.Duration // after the agent began
		want    string
	}{
		"registered":     {3 * time.Second, "before 1m0s\nto register 2s\nregistering 1s\nto ready 1s\nall 1m4s\n"},
		"existed before": {-time.Hour, "before 0s\nto register 0s\nregistering 0s\nto ready 0s\nall 0s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				x := &fakeNode{
					node: &corev1.Node{
						ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(began.Add(c.created))}},
					received: make(chan struct{}), changed: make(chan struct{})}
				s := newStartup()
				if err := s.register(prometheus.NewPedanticRegistry()); err != nil {
					t.Fatal(err)
				}
				done := make(chan error)
				go func() {
					done <- s.follow(t.Context(), x,
						moments{booted: began.Add(-time.Minute), began: began, tried: began.Add(2 * time.Second)})
				}()
				time.Sleep(3 * time.Second)
				close(x.received)
				time.Sleep(time.Second)
				ready := *x.node
				ready.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				synctest.Wait()
				was := x.changed
				x.node, x.changed = &ready, make(chan struct{})
				close(was)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				var got strings.Builder
				for _, one := range []struct {
					name  string
					gauge prometheus.Gauge
				}{{"before", s.before}, {"to register", s.toRegister}, {"registering", s.registering},
					{"to ready", s.toReady}, {"all", s.all}} {
					got.WriteString(one.name + " " +
						time.Duration(testutil.ToFloat64(one.gauge)*float64(time.Second)).String() + "\n")
				}
				if got.String() != c.want {
					t.Errorf("it took\n%s, want\n%s", got.String(), c.want)
				}
			})
		})
	}
}

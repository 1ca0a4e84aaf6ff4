package join

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/pod/status"
)

// noFacts is a node without facts.
type noFacts struct{}

func (noFacts) IPs() []netip.Addr                                             { return nil }
func (noFacts) Devices() nodeobject.Devices                                   { return nodeobject.Devices{} }
func (noFacts) Runtime() nodeobject.Runtime                                   { return nodeobject.Runtime{} }
func (noFacts) Images(context.Context) ([]corev1.ContainerImage, error)       { return nil, nil }
func (noFacts) VolumesInUse() (volumes []corev1.UniqueVolumeName, known bool) { return nil, true }

func newChanges() *changes {
	return &changes{
		object: nodeobject.New(nodeobject.Options{
			Inputs: noFacts{}, Conditions: condition.New(), Latest: nodeobject.NewLatest("n1"),
		}),
		stale: status.NewStale(), newAddresses: wake.New(), retry: 10 * time.Second,
		log: slog.New(slog.DiscardHandler),
	}
}

// Changes of the Node other than its addresses must not signal: they would abandon a pending request for a serving
// certificate.
func TestAddressesSignalsOnlyNewAddresses(t *testing.T) {
	c := newChanges()
	react := c.addresses()
	at := func(ip string, labels map[string]string) bool {
		n := &corev1.Node{
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}}}
		n.Labels = labels
		react(t.Context(), n)
		select {
		case <-c.newAddresses.C():
			return true
		default:
			return false
		}
	}
	got := []bool{at("192.0.2.1", nil), at("192.0.2.1", map[string]string{"a": "b"}), at("192.0.2.2", nil)}
	if diff := cmp.Diff([]bool{true, false, true}, got); diff != "" {
		t.Errorf("signalled (-want +got):\n%s", diff)
	}
}

// rangeRuntime records the pod address ranges that it receives.
type rangeRuntime struct {
	runtimeapi.RuntimeServiceClient
	err      error
	received []string
}

func (r *rangeRuntime) UpdateRuntimeConfig(_ context.Context, u *runtimeapi.UpdateRuntimeConfigRequest,
	_ ...grpc.CallOption) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	r.received = append(r.received, u.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	return &runtimeapi.UpdateRuntimeConfigResponse{}, r.err
}

func TestPodRangesAreSentOnceAndRetried(t *testing.T) {
	r := &rangeRuntime{err: errors.New("not now")}
	react := newChanges().podRanges(r)
	with := func(cidrs ...string) time.Duration {
		return react(t.Context(), &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: cidrs}})
	}
	again := []time.Duration{with(), with("10.1.0.0/24", "fd00::/64")}
	r.err = nil
	again = append(again, with("10.1.0.0/24", "fd00::/64"), with("10.1.0.0/24", "fd00::/64"), with("10.2.0.0/24"))
	if diff := cmp.Diff([]time.Duration{0, 10 * time.Second, 0, 0, 0}, again); diff != "" {
		t.Errorf("next call after (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.1.0.0/24,fd00::/64", "10.1.0.0/24,fd00::/64", "10.2.0.0/24"},
		r.received); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}
}

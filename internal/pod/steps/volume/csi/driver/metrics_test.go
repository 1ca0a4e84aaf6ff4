package driver

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Each call of a driver counts by its method and its gRPC status.
func TestCallsAreMeasured(t *testing.T) {
	r := New(Options{})
	reg := prometheus.NewPedanticRegistry()
	if err := r.RegisterMetric(reg); err != nil {
		t.Fatal(err)
	}
	call := measured(r.calls, "csi.example.com")
	for _, err := range []error{nil, nil, status.Error(codes.Aborted, "busy")} {
		invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err }
		answer := call(t.Context(), "/csi.v1.Node/NodePublishVolume", nil, nil, nil, invoke)
		if !errors.Is(answer, err) {
			t.Errorf("the answer is %v, want %v", answer, err)
		}
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "csi_operations_seconds" {
		t.Fatalf("%v, %v", families, err)
	}
	counts := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		key := ""
		for _, l := range m.GetLabel() {
			key += l.GetName() + "=" + l.GetValue() + " "
		}
		counts[key] = m.GetHistogram().GetSampleCount()
	}
	const same = "method_name=/csi.v1.Node/NodePublishVolume migrated=false "
	if len(counts) != 2 || counts["driver_name=csi.example.com grpc_status_code=OK "+same] != 2 ||
		counts["driver_name=csi.example.com grpc_status_code=Aborted "+same] != 1 {
		t.Errorf("counted %v", counts)
	}
}

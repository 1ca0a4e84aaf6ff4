package spans

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/containerd/v2/pkg/tracing"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The set-up of a pod's network is a child of the call's span. It is the only span of containerd that is recorded.
func TestNetworkSpan(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	header := propagation.MapCarrier{}
	sent, _ := provider.Tracer("").Start(t.Context(), "sent")
	propagation.TraceContext{}.Inject(sent, header)

	work := func(ctx context.Context) {
		ctx, run := tracing.StartSpan(ctx, "cri.sandbox.run")
		ctx, network := tracing.StartSpan(ctx, "cni.setup_pod_network")
		_, below := tracing.StartSpan(ctx, "client.NewContainer")
		below.End()
		network.SetStatus(errors.New("no address is free"))
		network.End()
		run.End()
	}
	in := metadata.NewIncomingContext(t.Context(), metadata.New(header))
	work(Context(in, provider, runtimeapi.RuntimeService_RunPodSandbox_FullMethodName))
	work(Context(in, provider, runtimeapi.RuntimeService_StopPodSandbox_FullMethodName))
	work(Context(in, nil, runtimeapi.RuntimeService_RunPodSandbox_FullMethodName))
	work(Context(t.Context(), provider, runtimeapi.RuntimeService_RunPodSandbox_FullMethodName))

	type seen struct{ Name, Parent, Status string }
	parent := trace.SpanContextFromContext(sent).SpanID().String()
	var got []seen
	for _, s := range recorder.Ended() {
		got = append(got, seen{s.Name(), s.Parent().SpanID().String(), s.Status().Description})
	}
	want := []seen{{"network", parent, "no address is free"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

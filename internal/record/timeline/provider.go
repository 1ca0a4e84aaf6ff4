package timeline

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// DefaultEndpoint is the address of the OTLP collector if the configuration has none (KubeletConfiguration
// tracing.endpoint).
const DefaultEndpoint = "localhost:4317"

// OTLP configures the export of spans, like tracing in KubeletConfiguration (KEP-2831).
type OTLP struct {
	// Endpoint is the collector's host:port. The connection is plain gRPC. Empty: DefaultEndpoint.
	Endpoint string
	// SamplingRatePerMillion is the number of exported traces in a million, 0 to 1,000,000. A trace that began
	// elsewhere is exported if it was sampled there.
	SamplingRatePerMillion int32
}

// ProviderOptions configures a TracerProvider.
type ProviderOptions struct {
	// Recorder receives every span, whether or not it is sampled for the export.
	Recorder *Recorder
	// OTLP enables the export.
	OTLP *OTLP
	// Service and Version identify this program to the collector. Service defaults to "berth".
	Service, Version string
	// Host is the node's name.
	Host string
	// Log receives problems of the export. Default: nothing is logged.
	Log *slog.Logger
}

// Provider returns the TracerProvider of the agent. shutdown exports the remaining spans while its context lasts, and
// ends the exporting goroutine if there is one.
func Provider(ctx context.Context, o ProviderOptions) (tp *sdktrace.TracerProvider,
	shutdown func(context.Context) error, err error) {
	if o.Service == "" {
		o.Service = "berth"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithRawSpanLimits(sdktrace.NewSpanLimits()),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service),
			attribute.String("service.version", o.Version),
			attribute.String("host.name", o.Host),
		)),
	}
	if o.Recorder != nil {
		options = append(options, sdktrace.WithSpanProcessor(o.Recorder))
	}
	rate := 0.0
	if o.OTLP != nil {
		exporter, err := newExporter(ctx, o.OTLP)
		if err != nil {
			return nil, nil, err
		}
		rate = float64(o.OTLP.SamplingRatePerMillion) / 1e6
		options = append(options, sdktrace.WithSpanProcessor(startBatcher(exporter, o.Log)))
	}
	options = append(options, sdktrace.WithSampler(sampler{sdktrace.TraceIDRatioBased(rate)}))
	tp = sdktrace.NewTracerProvider(options...)
	return tp, tp.Shutdown, nil
}

// newExporter returns the OTLP client. It connects when the first spans are sent.
func newExporter(ctx context.Context, o *OTLP) (sdktrace.SpanExporter, error) {
	endpoint := o.Endpoint
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	_, port, err := net.SplitHostPort(endpoint)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return nil, fmt.Errorf("tracing endpoint %q is not host:port: %w", endpoint, err)
	}
	if o.SamplingRatePerMillion < 0 || o.SamplingRatePerMillion > 1_000_000 {
		return nil, fmt.Errorf("tracing sampling rate %d is not in 0 to 1,000,000", o.SamplingRatePerMillion)
	}
	exporter, err := otlptracegrpc.New(ctx,
		otlptracegrpc.WithEndpoint(endpoint),
		otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithTimeout(exportTimeout),
		// A collector that does not answer costs one attempt per batch and not a minute of retries.
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false}),
	)
	if err != nil {
		return nil, fmt.Errorf("export traces to %s: %w", endpoint, err)
	}
	return exporter, nil
}

// sampler records every span, for the Recorder, and marks the spans to export: all of a trace or none, as decided at
// its beginning.
type sampler struct {
	ratio sdktrace.Sampler
}

func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	sampled := parent.IsSampled()
	if !parent.IsValid() {
		sampled = s.ratio.ShouldSample(p).Decision == sdktrace.RecordAndSample
	}
	decision := sdktrace.RecordOnly
	if sampled {
		decision = sdktrace.RecordAndSample
	}
	return sdktrace.SamplingResult{Decision: decision, Tracestate: parent.TraceState()}
}

func (s sampler) Description() string { return "RecordAll{" + s.ratio.Description() + "}" }

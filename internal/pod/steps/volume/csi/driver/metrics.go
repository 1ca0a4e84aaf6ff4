package driver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

func newCalls() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_operations_seconds",
		Help:    "Duration in seconds of calls of CSI drivers, by method and gRPC status.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})
}

// RegisterMetric registers the metric of the calls of drivers. Call it once.
func (r *Registry) RegisterMetric(reg prometheus.Registerer) error {
	if err := reg.Register(r.calls); err != nil {
		return fmt.Errorf("register metrics of CSI drivers: %w", err)
	}
	return nil
}

// migratedKey is the key of a context's value: whether the call is about a volume that was translated to CSI.
type migratedKey struct{}

// Migrated returns a context for a call that says in the metric whether its volume was translated to CSI.
func Migrated(ctx context.Context, migrated bool) context.Context {
	return context.WithValue(ctx, migratedKey{}, migrated)
}

// measured returns an interceptor that measures the calls of a driver.
func measured(calls *prometheus.HistogramVec, name string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, request, answer, conn, opts...)
		migrated, _ := ctx.Value(migratedKey{}).(bool)
		calls.WithLabelValues(name, method, status.Code(err).String(), strconv.FormatBool(migrated)).
			Observe(time.Since(began).Seconds())
		return err
	}
}

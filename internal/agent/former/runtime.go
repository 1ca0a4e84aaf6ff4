package former

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/agent/foundation"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/object"
)

// noAnswer is the error for a runtime that has not answered for a time.
func noAnswer(patience time.Duration) error {
	return fmt.Errorf("the container runtime has not answered for %v: start it, or correct containerRuntimeEndpoint",
		patience)
}

// Options of the functions that call a runtime. All are required.
type Options struct {
	Config *config.Config
	// Runtimes makes the container runtime that the configuration asks for.
	Runtimes engine.Kinds
	Log      *slog.Logger
}

// embeddedTime is how long the embedded runtime may take to start. It is a part of this process: on a busy machine it
// is slow, but it comes, and pods that were left in it would run twice.
const embeddedTime = 2 * time.Minute

// With starts the runtime that the configuration asks for, works with it, stops it again, and removes its network. A
// runtime in another process has to answer within patience.
func With(ctx context.Context, o Options, objects *object.Objects, patience time.Duration,
	work func(context.Context, *engine.Engine) error) error {
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	base := foundation.New(ctx, func() { cancel(nil) })
	e, err := start(alive, cancel, base, o, objects, patience)
	if err == nil {
		err = work(alive, e)
	}
	err = errors.Join(err, base.Stop())
	if e != nil {
		err = errors.Join(err, e.RemoveNetwork(ctx))
	}
	return err
}

// start starts the runtime, and waits for its answer.
func start(ctx context.Context, cancel context.CancelCauseFunc, base *foundation.Foundation, o Options,
	objects *object.Objects, patience time.Duration) (*engine.Engine, error) {
	choice, err := endpoint.Choose(ctx, o.Config, o.Log)
	if err != nil {
		return nil, fmt.Errorf("start the container runtime: %w", err)
	}
	if choice.Endpoint == "" {
		patience = embeddedTime
	}
	late := time.AfterFunc(patience, func() { cancel(noAnswer(patience)) })
	e, err := engine.Start(ctx, base.Launch, engine.Options{Config: o.Config, Choice: choice, Kinds: o.Runtimes,
		Classes: objects, Metrics: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider(), Log: o.Log})
	if !late.Stop() {
		return e, noAnswer(patience)
	}
	if err != nil {
		return e, fmt.Errorf("start the container runtime: %w", err)
	}
	return e, nil
}

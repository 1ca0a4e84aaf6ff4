package former

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
)

// slow makes runtimes that fail after a minute.
type slow struct{}

type slowRuntime struct{ engine.Runtime }

var errBroken = errors.New("broken")

func (slowRuntime) Connect(ctx context.Context, _ engine.Launch, _ cri.Options) (*cri.Client, error) {
	select {
	case <-time.After(time.Minute):
		return nil, errBroken
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (slow) Runtime(endpoint.Choice, *config.Config, trace.TracerProvider, *slog.Logger) engine.Runtime {
	return slowRuntime{}
}

func (slow) Traits(endpoint.Choice, *config.Config) engine.Traits { return engine.Traits{} }

// A runtime in another process is given up when it does not answer in time. The embedded one is a part of this process,
// and slow on a busy machine.
func TestWithWaitsForTheEmbeddedRuntime(t *testing.T) {
	for at, want := range map[string]string{
		"unix:///none.sock": "has not answered for 3s",
		endpoint.Embedded:   errBroken.Error(),
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &config.Config{}
			c.Runtime.Endpoint = at
			o := Options{c, slow{}, slog.New(slog.DiscardHandler)}
			err := With(t.Context(), o, object.New(nil), answerTime, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", at, err, want)
			}
		})
	}
}

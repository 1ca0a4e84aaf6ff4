// Package kind has the kinds of container runtimes: embedded.go for the runtime in this process, docker.go for a Docker
// Engine, socket.go for one behind a CRI socket. Each implements engine.Runtime. To add a kind, implement
// engine.Runtime here and add it to All.
//
// Only this package and the command line link the embedded runtime. The parts of the agent know it as an
// engine.Runtime, so that their tests build without containerd.
package kind

import (
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/config"
)

// All implements engine.Kinds.
type All struct{}

// Runtime returns the runtime that an endpoint stands for.
func (All) Runtime(choice endpoint.Choice, c *config.Config, tracer trace.TracerProvider,
	log *slog.Logger) engine.Runtime {
	switch {
	case choice.Endpoint == "":
		return newEmbedded(c, tracer, log)
	case strings.HasPrefix(choice.Endpoint, config.DockerRuntime):
		return newDocker(choice, c, log)
	}
	return socket{choice, c}
}

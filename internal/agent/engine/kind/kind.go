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
	case isDocker(choice):
		return newDocker(choice, c, log)
	}
	return socket{choice, c}
}

// Traits returns the constant properties of the runtime that an endpoint stands for.
func (All) Traits(choice endpoint.Choice, c *config.Config) engine.Traits {
	switch {
	case choice.Endpoint == "":
		return engine.Traits{
			NoSELinux: "the embedded runtime sets none; use a containerd that does (enable_selinux)",
			StateDir:  c.RunDir, InProcess: true, BuiltInNetwork: true, LogsOOMFloor: true,
			HandlerPrograms: c.Runtime.Embedded.Describe(c.Runtime.CgroupDriver),
		}
	case isDocker(choice):
		return engine.Traits{Shared: true, StateDir: "/", BuiltInNetwork: true}
	}
	return engine.Traits{Shared: true, StateDir: "/"}
}

func isDocker(choice endpoint.Choice) bool {
	return strings.HasPrefix(choice.Endpoint, config.DockerRuntime)
}

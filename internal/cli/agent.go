package cli

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/runtime"
)

// loadConfig reads the configuration. It logs a warning for each setting without effect.
func loadConfig(f config.Flags, log *slog.Logger) (*config.Config, error) {
	c, warnings, err := config.Load(f)
	for _, w := range warnings {
		log.Warn("configuration: " + w.String())
	}
	return c, err
}

func makeAgent(f config.Flags, log *slog.Logger) (*agent.Agent, error) {
	c, err := loadConfig(f, log)
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Options{Config: c, Runtimes: kind.All{}, Version: api.BuildVersion().Version,
		Verbosity: process.Verbosity(log), Log: log}), nil
}

// newAgent builds the agent of this process.
func newAgent(f config.Flags, log *slog.Logger) (agentProcess, error) {
	return makeAgent(f, log)
}

// resetAgent removes everything that agents have left on a root directory.
func resetAgent(ctx context.Context, f config.Flags, log *slog.Logger) error {
	f.Apart = true
	a, err := makeAgent(f, log)
	if err != nil {
		return err
	}
	return a.Reset(ctx)
}

// runtimeConfig returns the configuration of the embedded runtime for an agent with these flags.
func runtimeConfig(f config.Flags, log *slog.Logger) (runtime.Config, error) {
	f.Apart = true
	c, err := loadConfig(f, log)
	if err != nil {
		return runtime.Config{}, err
	}
	return kind.RuntimeConfig(c, log), nil
}

// printSteps prints the steps of a pod's life.
func printSteps(w io.Writer) error {
	t := printer.NewTable(w, "STEP", "PHASE", "AFTER")
	for _, s := range agent.Steps() {
		t.Row(s.Name, s.Phase.String(), strings.Join(s.After, ", "))
	}
	return t.Flush()
}

func printStages(w io.Writer) error {
	t := printer.NewTable(w, "STAGE", "DECIDES", "WHAT IT DOES")
	for _, s := range agent.AdmissionStages() {
		decides := ""
		if s.Decides {
			decides = "yes"
		}
		t.Row(s.Name, decides, s.Does)
	}
	return t.Flush()
}

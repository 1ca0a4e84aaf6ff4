package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/agent/reset"
	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/config/recall"
	"github.com/berth-run/berth/internal/runtime"
)

// loadConfig reads the configuration. It logs a warning for each setting without effect.
func loadConfig(f config.Flags, log *slog.Logger) (*config.Config, error) {
	c, warnings, err := config.Load(f)
	for _, w := range warnings {
		log.Warn("configuration: " + w.String())
	}
	if err != nil && client.NextStep(err) == "" {
		err = client.Next(err, `correct the configuration; "berth doctor --config FILE" checks it`)
	}
	return c, err
}

// makeAgent returns an agent. Its Run closes ready when its socket is open.
func makeAgent(f config.Flags, ready chan<- struct{}, log *slog.Logger) (*agent.Agent, error) {
	c, err := loadConfig(f, log)
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Options{Config: c, Flags: f, Runtimes: kind.All{}, Version: api.BuildVersion().Version,
		Verbosity: process.Verbosity(log), Ready: ready, Log: log}), nil
}

// lastRunDir describes the default of --run-dir for commands that work on what an agent has left.
const lastRunDir = "the last agent's"

// withRunDir returns flags with the --run-dir of the last agent on the root directory, unless they name one: the mounts
// and the state of the pods are there.
func withRunDir(f config.Flags, log *slog.Logger) config.Flags {
	if f.RunDir != "" {
		return f
	}
	last, err := recall.Load(cmp.Or(f.RootDir, config.DefaultRootDir), recall.SystemFile)
	if err != nil {
		log.Warn("using the default --run-dir, because that of the last agent is unknown", "err", err)
		return f
	}
	f.RunDir = last.RunDir
	return f
}

// loadApart reads the configuration of a command that works on a root directory in the place of an agent.
func loadApart(f config.Flags, log *slog.Logger) (*config.Config, error) {
	f.Apart = true
	return loadConfig(withRunDir(f, log), log)
}

// resetAgent removes everything that agents have left on a root directory.
func resetAgent(ctx context.Context, f config.Flags, log *slog.Logger) error {
	c, err := loadApart(f, log)
	if err != nil {
		return err
	}
	return reset.Run(ctx, reset.Options{Config: c, Runtimes: kind.All{}, Log: log})
}

// standaloneRuntime returns the embedded runtime of an agent with these flags. It takes the root directory from agents
// and resets, so that none of them works there until the caller calls unlock.
func standaloneRuntime(ctx context.Context, f config.Flags, log *slog.Logger) (r *runtime.Runtime,
	unlock func() error, err error) {
	c, err := loadApart(f, log)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(c.RootDir, 0o711); err != nil { // as the agent makes it
		return nil, nil, client.Next(fmt.Errorf("make root directory: %w", err), "choose another --root-dir")
	}
	if unlock, err = lock.Root(ctx, c.RootDir); err != nil {
		return nil, nil, err
	}
	return runtime.New(kind.RuntimeConfig(c, log)), unlock, nil
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

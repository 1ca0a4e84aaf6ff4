package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/agentflag"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/config/recall"
	"github.com/berth-run/berth/internal/node/doctor"
)

// Command returns "berth doctor".
func Command(a *command.App, kinds engine.Kinds) *cobra.Command {
	var f config.Flags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, and say for each finding what to do",
		Long: `Check the configuration and the machine: kernel, cgroups, modules, sysctls, swap, disk, clock,
networks, other runtimes and capabilities. It changes nothing and needs no agent. Without --config it
takes the configuration of the last agent on the root directory. Run it as root, since other users
cannot see everything.

A problem keeps pods from running, a warning will cause trouble later, and a note explains what Berth
does on this machine. The exit status is 1 if there is a problem. The agent logs the same findings
when it starts.`,
		Example: "  berth doctor --config /etc/berth/config.yaml",
		Args:    command.Usage(cobra.NoArgs),
	}
	agentflag.Config(cmd, &f)
	write := command.FormatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.RootDir = a.Root
		findings, err := look(cmd.Context(), f, kinds)
		if err != nil {
			return err
		}
		done, err := write(cmd.OutOrStdout(), list{api.Type("FindingList"), findings})
		if !done && err == nil {
			err = show(cmd.OutOrStdout(), findings)
		}
		if err == nil && slices.ContainsFunc(findings, isProblem) {
			return &command.ExitError{Code: 1}
		}
		return err
	}
	return cmd
}

// list is the output of -o json.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Items           []doctor.Finding `json:"items"`
}

func isProblem(f doctor.Finding) bool { return f.Level == doctor.Problem }

// configCheck is the name of the check of the configuration.
const configCheck = "configuration"

// look checks the configuration and the machine. If the configuration cannot be used, look checks the machine with the
// defaults.
func look(ctx context.Context, f config.Flags, kinds engine.Kinds) ([]doctor.Finding, error) {
	if f.ConfigFile == "" && f.ConfigDir == "" {
		root := cmp.Or(f.RootDir, config.DefaultRootDir)
		last, err := recall.Load(root, recall.SystemFile)
		if err != nil {
			return nil, client.Next(err, "correct or remove that file, or choose another --root-dir")
		}
		f = last
	}
	var findings []doctor.Finding
	f.Apart = true
	c, warnings, err := config.Load(f)
	for _, w := range warnings {
		findings = append(findings, doctor.Finding{Check: configCheck, Level: doctor.Warning, Message: w.String(),
			Next: "remove the field, or see docs/agent.md"})
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			findings = append(findings, doctor.Finding{Check: configCheck, Level: doctor.Problem,
				Message: strings.TrimSpace(line), Next: "correct the configuration"})
		}
		c = &config.Config{RootDir: cmp.Or(f.RootDir, config.DefaultRootDir)}
	}
	s, err := settings(ctx, c, kinds)
	if err != nil {
		findings = append(findings, noRuntime(err))
	}
	facts, err := doctor.Read(ctx, s)
	if err != nil {
		return nil, client.Next(fmt.Errorf("check the machine: %w", err),
			"run this command as root, or choose another --root-dir")
	}
	return append(findings, doctor.Examine(facts)...), nil
}

// settings returns the parts of a configuration that the checks depend on. The error says why an agent could not choose
// a runtime.
func settings(ctx context.Context, c *config.Config, kinds engine.Kinds) (doctor.Config, error) {
	s := doctor.Config{RootDir: c.RootDir, PodRanges: c.Runtime.PodCIDRs, SwapUsed: c.Pods.LimitedSwap}
	choice, err := endpoint.Choose(ctx, c, slog.New(slog.DiscardHandler))
	if err == nil {
		traits := kinds.Traits(choice, c)
		s.BuiltInNetwork, s.OwnImages = traits.BuiltInNetwork, !traits.Shared
	}
	return s, err
}

// noRuntime is the finding about an agent that could not choose a runtime.
func noRuntime(err error) doctor.Finding {
	return doctor.Finding{Check: configCheck, Level: doctor.Problem, Message: fmt.Sprintf("container runtime: %v", err),
		Next: "start the runtime, or set containerRuntimeEndpoint"}
}

// show writes a line for each check, and what to do about each finding.
func show(w io.Writer, findings []doctor.Finding) error {
	t := printer.NewTable(w, "CHECK", "RESULT", "FINDING")
	for _, name := range append([]string{configCheck}, doctor.Checks()...) {
		clean := true
		for _, f := range findings {
			if f.Check == name {
				clean = false
				t.Row(name, string(f.Level), f.Message)
				t.Row("", "", "next: "+f.Next)
			}
		}
		if clean {
			t.Row(name, "ok", "")
		}
	}
	return t.Flush()
}

// Log logs the findings about the machine of an agent that starts.
func Log(ctx context.Context, c *config.Config, kinds engine.Kinds, log *slog.Logger) {
	s, _ := settings(ctx, c, kinds) // the agent itself fails, and says why
	facts, err := doctor.Read(ctx, s)
	if err != nil {
		log.Warn("cannot read all facts of this machine, checking the others", "err", err)
	}
	for _, f := range doctor.Examine(facts) {
		level := slog.LevelWarn
		if f.Level == doctor.Note {
			level = slog.LevelInfo
		}
		log.Log(ctx, level, "finding about this machine", "check", f.Check, "level", string(f.Level), "finding",
			f.Message, "next", f.Next)
	}
}

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
)

func applyCommand(a *app) *cobra.Command {
	var (
		s      command.Scope
		files  []string
		dryRun bool
		out    command.Output
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE|-",
		Short: "Create or replace pods and the objects they use, and keep them across restarts and reboots",
		Long: "Create or replace the pods in manifests (JSON or YAML), and the ConfigMaps, Secrets, claims, volumes\n" +
			"and RuntimeClasses in them. The agent stores all of them: they survive a restart of the agent and a\n" +
			"reboot, until they are deleted. Each file is applied completely or not at all.",
		Example: "  berth apply -f web.yaml",
		Args:    command.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			manifests, err := command.ReadManifests(cmd, files)
			if err != nil {
				return err
			}
			c := a.Client()
			var failed []error
			for _, m := range manifests {
				results, err := c.Apply(cmd.Context(), m.Data,
					client.Apply{Namespace: s.Explicit(cmd), Origin: m.Origin, DryRun: dryRun})
				if err != nil {
					failed = append(failed, err)
					continue
				}
				if err := printResults(cmd, results, out.Format, dryRun); err != nil {
					return err
				}
			}
			return errors.Join(failed...)
		},
	}
	s.Add(cmd)
	out.Add(cmd, "name")
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"`file` with manifests, or - for standard input; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the manifests without applying them")
	command.Mark(cmd.MarkFlagRequired("filename"))
	command.Mark(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
	return cmd
}

func printResults(cmd *cobra.Command, results []api.ApplyResult, format string, dryRun bool) error {
	var errs []error
	for _, r := range results {
		for _, warning := range r.Warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s/%s: %s\n", strings.ToLower(r.Kind), r.Name, warning)
		}
		line := strings.ToLower(r.Kind) + "/" + r.Name
		if format != "name" {
			line += " " + string(r.Action)
			if dryRun {
				line += " (dry run)"
			}
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

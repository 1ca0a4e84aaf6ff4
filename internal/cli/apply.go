package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
)

func applyCommand(a *app) *cobra.Command {
	var (
		s      scope
		files  []string
		dryRun bool
		out    output
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE|-",
		Short: "Create or replace pods and the objects they name, and keep them over restarts and reboots",
		Long: "Create or replace the pods of manifests, JSON or YAML, and the ConfigMaps, Secrets, claims, " +
			"volumes and\n" +
			"RuntimeClasses that pods name. The agent keeps them: they come back after a restart of the agent and a\n" +
			"reboot, until they are deleted. Of one file, everything is taken or nothing.",
		Example: "  berth apply -f web.yaml",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			manifests, err := readManifests(cmd, files)
			if err != nil {
				return err
			}
			c := a.client()
			var failed []error
			for _, m := range manifests {
				results, err := c.Apply(cmd.Context(), m.data,
					client.Apply{Namespace: s.explicit(cmd), Origin: m.origin, DryRun: dryRun})
				if err != nil {
					failed = append(failed, err)
					continue
				}
				if err := printResults(cmd, results, out.format, dryRun); err != nil {
					return err
				}
			}
			return all(cmd.ErrOrStderr(), failed)
		},
	}
	s.add(cmd)
	out.add(cmd, "name")
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"`file` of manifests, - for standard input; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the manifests and change nothing")
	mark(cmd.MarkFlagRequired("filename"))
	mark(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
	return cmd
}

// all prints all errors but the last, which it returns for Main to print.
func all(stderr io.Writer, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	last := len(errs) - 1
	for _, err := range errs[:last] {
		printError(stderr, err)
	}
	return errs[last]
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

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
		Short: "Create or replace pods and the objects they use, and keep them across restarts and reboots",
		Long: "Create or replace the pods in manifests (JSON or YAML), and the ConfigMaps, Secrets, claims,\n" +
			"volumes and RuntimeClasses in them. The agent stores all of them: they survive a restart of the agent and a\n" +
			"reboot, until they are deleted. Each file is applied completely or not at all.",
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
		"`file` with manifests, or - for standard input; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the manifests without applying them")
	mark(cmd.MarkFlagRequired("filename"))
	mark(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
	return cmd
}

// all prints all errors but the last. It returns the last one, which Main prints.
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

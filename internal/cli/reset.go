package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/agentflag"
	"github.com/berth-run/berth/internal/config"
)

func resetCommand(a *app) *cobra.Command {
	var (
		f   config.Flags
		l   logFlagSet
		yes bool
	)
	cmd := &cobra.Command{
		Use:   "reset --yes",
		Short: "Kill every pod of this root and remove all that agents left there",
		Long: "Kill every pod of this root at once and remove everything that agents left on this machine for " +
			"it: applied\n" +
			"pods, volumes, cgroups, the embedded runtime with its images and network, and the directory itself. Of\n" +
			"the kubelet's directory, " + config.JoinedRootDir +
			", the node's certificates (pki) and files that others wrote stay.\n" +
			"It fails while an agent works there.",
		Example: "  berth reset --yes",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return client.Next(fmt.Errorf("this kills every pod on %s and removes their data",
					cmp.Or(a.root, config.DefaultRootDir)), "say --yes if that is meant")
			}
			if err := needRoot(); err != nil {
				return err
			}
			log, err := l.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return resetAgent(cmd.Context(), a.flags(f), log)
		},
	}
	agentflag.Config(cmd, &f)
	l.add(cmd, slog.LevelWarn)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// needRoot says that a command is for root alone.
func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return client.Next(errors.New("running pods needs root"), "run this command as root")
}

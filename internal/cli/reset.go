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
	"github.com/berth-run/berth/internal/cli/command"
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
		Short: "Kill every pod in --root-dir and remove everything that agents have left",
		Long: "Kill every pod in --root-dir at once and remove everything that agents with this directory have left\n" +
			"on this machine: applied pods, volumes, cgroups, the embedded runtime with its images and network,\n" +
			"and the directory itself. In the kubelet's directory, " + config.JoinedRootDir +
			", the node's certificates (pki)\n" +
			"and files of other programs stay. The command fails while an agent runs there.\n" +
			"No file behind a mount is removed. A directory that is a mount point or behind a link is emptied and\n" +
			"stays. If you have mounted a disk below the directory, the disk stays too: the command names it and\n" +
			"fails.",
		Example: "  berth reset --yes",
		Args:    command.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return client.Next(fmt.Errorf("this kills every pod on %s and removes their data",
					cmp.Or(a.Root, config.DefaultRootDir)), "confirm with --yes")
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
	agentflag.RunDir(cmd, &f, lastRunDir)
	l.add(cmd, slog.LevelWarn)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that all pods and their data are removed")
	return cmd
}

// needRoot returns an error if the user is not root.
func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return client.Next(errors.New("this command needs root"), "run this command as root")
}

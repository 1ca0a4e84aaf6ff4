package ui

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/ui"
)

// Command returns "berth ui".
func Command(a *command.App) *cobra.Command {
	var port uint16
	var file string
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show this node as a web page, until Ctrl-C",
		Long: `Show this node as a web page: its pods, live, and for each pod its start, containers, logs, events,
volumes and YAML, with a shell in each container; and the machine with what it used over the last
day. Pods can be stopped, restarted and deleted there.

The command prints a link that works once. It serves the page on 127.0.0.1 only and talks to the
agent's socket. Press Enter for another link, for example for a second browser.

From another machine, forward the port: ssh -L 8080:127.0.0.1:8080 NODE, with --port 8080.

With --export it writes the present state into one HTML file, for a bug report. Logs, the values of
environment variables and what looks like a secret are left out. Read the file before you send it.`,
		Example: "  berth ui --port 8080\n  berth ui --export node.html",
		Args:    command.Usage(cobra.NoArgs),
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "`port` of 127.0.0.1 to serve the page on; 0: a free one")
	command.Mark(cmd.RegisterFlagCompletionFunc("port", cobra.NoFileCompletions))
	cmd.Flags().StringVar(&file, "export", "", "write the page with the present state into this `file`, and end")
	cmd.MarkFlagsMutuallyExclusive("port", "export")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file != "" {
			return export(cmd, a, file)
		}
		return serve(cmd, a, port)
	}
	return cmd
}

// export writes a page that only its owner can read.
func export(cmd *cobra.Command, a *command.App, file string) error {
	page, err := ui.Export(cmd.Context(), a.Client())
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, page, 0o600); err != nil {
		return client.Next(fmt.Errorf("export the page: %w", err), "give --export a path that can be written")
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Wrote %s (%d KB). Read it before you send it.\n", file, len(page)>>10)
	return nil
}

func serve(cmd *cobra.Command, a *command.App, port uint16) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	agent := a.Client()
	if _, err := agent.Status(ctx); err != nil {
		return err
	}
	s, err := ui.Listen(ctx, port, agent)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Open this link in a browser. It works once; press Enter for another one.\n%s\n",
		s.Link())
	go moreLinks(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), s)
	return s.Run()
}

// moreLinks prints a link for each line of the input. It ends with the process: a read from a terminal cannot be ended.
func moreLinks(ctx context.Context, in io.Reader, out io.Writer, s *ui.Server) {
	for lines := bufio.NewScanner(in); lines.Scan() && ctx.Err() == nil; {
		fmt.Fprintln(out, s.Link())
	}
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/checkpoint"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/container"
	"github.com/berth-run/berth/internal/cli/dockershim"
	"github.com/berth-run/berth/internal/cli/doctor"
	"github.com/berth-run/berth/internal/cli/explain"
	"github.com/berth-run/berth/internal/cli/offline"
	"github.com/berth-run/berth/internal/cli/setup"
	"github.com/berth-run/berth/internal/cli/top"
	"github.com/berth-run/berth/internal/cli/topology"
	"github.com/berth-run/berth/internal/cli/trace"
	"github.com/berth-run/berth/internal/cli/ui"
	"github.com/berth-run/berth/internal/config"
)

// app adds the methods of this package's commands to the shared flags.
type app struct{ command.App }

// Main runs a command line, without the program's name, and returns the exit status. It is 0 for success, 1
// for an error, or the exit code of a container (run, exec, debug).
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{}
	root := offline.New(&a.App, stderr)
	a.Offline = root
	cmd := newRoot(a)
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	ran, err := cmd.ExecuteC()
	err = errors.Join(err, root.Close())
	if err == nil {
		return 0
	}
	if errors.Is(err, explain.ErrNotAdmitted) {
		return explain.StatusNotAdmitted
	}
	if client.NextStep(err) == "" && isUsage(err) {
		err = client.Next(err, fmt.Sprintf("see %q", ran.CommandPath()+" --help"))
	}
	if exit, ok := errors.AsType[*command.ExitError](err); ok && exit.Err == nil {
		return exit.Code
	}
	command.PrintError(stderr, ran, err)
	if exit, ok := errors.AsType[*command.ExitError](err); ok {
		return exit.Code
	}
	return 1
}

// isUsage reports whether err is a usage error that cobra makes after parsing the flags. It compares texts,
// because cobra has no types for these errors.
func isUsage(err error) bool {
	for _, prefix := range []string{"required flag(s)", "unknown command", "if any flags in the group",
		"at least one of the flags"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	return false
}

// Tree returns the commands, for programs that write pages about them. They cannot be run.
func Tree() *cobra.Command { return newRoot(&app{}) }

// requestTimeout is the default of --request-timeout. An agent on a busy machine answers within seconds.
const requestTimeout = 30 * time.Second

func newRoot(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "berth",
		Short: "Run Kubernetes Pods on this machine, with nothing else installed",
		Example: "  berth run web.yaml          run a pod in the foreground\n  berth get pods -A           " +
			"list the pods of this machine's agent",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&a.Root, "root-dir", "",
		"`directory` with the agent's state (default "+config.DefaultRootDir+", or "+config.JoinedRootDir+
			" with \"berth agent --kubeconfig\")")
	cmd.PersistentFlags().StringVar(&a.Socket, "socket", "",
		"`path` of the agent's socket (default "+config.SocketOf("")+", or berth.sock in another --root-dir)")
	cmd.PersistentFlags().DurationVar(&a.RequestTimeout, "request-timeout", requestTimeout,
		"give up when the agent has answered nothing for this `duration`; 0: no limit. While it answers other "+
			"requests, one may take long")
	command.Mark(cmd.MarkPersistentFlagDirname("root-dir"))
	command.Mark(cmd.MarkPersistentFlagFilename("socket"))
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return client.Next(command.FlagError(err), fmt.Sprintf("see %q", cmd.CommandPath()+" --help"))
	})
	cmd.AddCommand(
		runCommand(a), applyCommand(a), deleteCommand(a),
		getCommand(a), describeCommand(a),
		resizeCommand(a), conditionCommand(a), eventsCommand(a), trace.Command(&a.App),
		explain.Command(&a.App), imageCommand(a),
		topology.Command(&a.App), top.Command(&a.App), ui.Command(&a.App),
		doctor.Command(&a.App, kind.All{}), setup.Command(&a.App),
		agentCommand(a), runtimeCommand(a), dockershim.Command(), resetCommand(a), versionCommand(),
	)
	cmd.AddCommand(container.Commands(&a.App)...)
	cmd.AddCommand(checkpoint.Commands(&a.App)...)
	return cmd
}

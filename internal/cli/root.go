package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/explain"
	"github.com/berth-run/berth/internal/cli/topology"
	"github.com/berth-run/berth/internal/config"
)

// app holds the flags that all subcommands share.
type app struct {
	root   string
	socket string
}

// Main runs a command line, without the program's name, and returns the exit status. It is 0 for success, 1
// for an error, or the exit code of a container (run, exec, debug).
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	ran, err := cmd.ExecuteC()
	if err == nil {
		return 0
	}
	if errors.Is(err, explain.ErrNotAdmitted) {
		return explain.StatusNotAdmitted
	}
	if client.NextStep(err) == "" && isUsage(err) {
		err = client.Next(err, fmt.Sprintf("see %q", ran.CommandPath()+" --help"))
	}
	if exit, ok := errors.AsType[*exitError](err); ok && exit.err == nil {
		return exit.code
	}
	printError(stderr, err)
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
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

// exitError ends the program with an exit status. If err is set, it is printed first.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return fmt.Sprintf("exit status %d", e.code)
}

func (e *exitError) Unwrap() error { return e.err }

// printError prints an error, its causes and the next step.
func printError(w io.Writer, err error) {
	fmt.Fprintf(w, "error: %v\n", err)
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Type != api.CauseNextStep && !strings.Contains(err.Error(), c.Message) {
				fmt.Fprintf(w, "  %s: %s\n", c.Field, c.Message)
			}
		}
	}
	if next := client.NextStep(err); next != "" {
		fmt.Fprintf(w, "next: %s\n", next)
	}
}

func newRoot() *cobra.Command {
	a := &app{}
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
	cmd.PersistentFlags().StringVar(&a.root, "root-dir", "",
		"`directory` with the agent's state (default "+config.DefaultRootDir+", or "+config.JoinedRootDir+
			" with \"berth agent --kubeconfig\")")
	cmd.PersistentFlags().StringVar(&a.socket, "socket", "",
		"`path` of the agent's socket (default "+config.SocketOf("")+", or berth.sock in another --root-dir)")
	mark(cmd.MarkPersistentFlagDirname("root-dir"))
	mark(cmd.MarkPersistentFlagFilename("socket"))
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return client.Next(err, fmt.Sprintf("see %q", cmd.CommandPath()+" --help"))
	})
	cmd.AddCommand(
		runCommand(a), applyCommand(a), deleteCommand(a),
		getCommand(a), describeCommand(a), logsCommand(a), execCommand(a), attachCommand(a), copyCommand(a),
		forwardCommand(a), debugCommand(a), resizeCommand(a), conditionCommand(a), eventsCommand(a), traceCommand(a),
		explain.Command(a.client, readManifest), imageCommand(a),
		topology.Command(topology.Options{Client: a.client, Usage: usage, Format: formatFlag}),
		agentCommand(a), runtimeCommand(a), resetCommand(a), versionCommand(),
	)
	return cmd
}

// mark panics on an error, which only a wrong flag name in this package can cause.
func mark(err error) {
	if err != nil {
		panic(err)
	}
}

// socketPath returns the path of the agent's socket.
func (a *app) socketPath() string {
	if a.socket != "" {
		return a.socket
	}
	return config.SocketOf(a.root)
}

func (a *app) client() *client.Client { return client.New(a.socketPath()) }

// usage adds the usage line to the error of a wrong number of arguments.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return client.Next(err, "usage: "+cmd.UseLine())
		}
		return nil
	}
}

// scope is the namespace flag of a command.
type scope struct {
	namespace string
	all       bool
}

func (s *scope) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.namespace, "namespace", "n", "default", "`namespace`")
}

func (s *scope) addAll(cmd *cobra.Command) {
	s.add(cmd)
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "all namespaces")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// selected returns the namespace to list, or "" for all.
func (s *scope) selected() string {
	if s.all {
		return ""
	}
	return s.namespace
}

// explicit returns the namespace if the user has set the flag, or "".
func (s *scope) explicit(cmd *cobra.Command) string {
	if cmd.Flags().Changed("namespace") {
		return s.namespace
	}
	return ""
}

// pod returns the pod that an argument names: NAME or pod/NAME.
func (s *scope) pod(arg string) (types.NamespacedName, error) {
	kind, name, typed := strings.Cut(arg, "/")
	if !typed {
		name = arg
	} else if !isPods(kind) {
		return types.NamespacedName{}, client.Next(fmt.Errorf("%q is not a pod", arg), "write NAME or pod/NAME")
	}
	if name == "" {
		return types.NamespacedName{}, client.Next(fmt.Errorf("%q names no pod", arg), "write NAME or pod/NAME")
	}
	return types.NamespacedName{Namespace: s.namespace, Name: name}, nil
}

func isPods(kind string) bool { return kind == "pod" || kind == "pods" || kind == "po" }

// manifest is the content of one manifest file.
type manifest struct {
	origin string
	data   []byte
}

// readManifests reads files. "-" stands for standard input.
func readManifests(cmd *cobra.Command, files []string) ([]manifest, error) {
	var all []manifest
	for _, name := range files {
		data, err := readManifest(cmd.InOrStdin(), name)
		if err != nil {
			return nil, err
		}
		all = append(all, manifest{name, data})
	}
	return all, nil
}

func readManifest(stdin io.Reader, name string) ([]byte, error) {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil,
				client.Next(fmt.Errorf("read manifest: %w", err),
					`give the path of a file with pods, or - for standard input`)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return nil, client.Next(fmt.Errorf("read manifest: %s is a directory", name),
				"name its files, or let an agent watch it: staticPodPath in the configuration")
		}
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, api.MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", name, err)
	}
	if len(data) > api.MaxManifest {
		return nil,
			client.Next(fmt.Errorf("read manifest %s: it is over %d MiB", name, api.MaxManifest>>20),
				"split it into several files")
	}
	return data, nil
}

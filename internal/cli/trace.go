package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/record/timeline"
)

// plainWidth is the width of a waterfall that is not written to a terminal, in columns.
const plainWidth = 120

type traceFlags struct {
	command.Scope
	command.Output
	depth int
}

func traceCommand(a *app) *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace [POD]",
		Short: "Draw the start of a pod with every step, call and wait, or list recorded starts",
		Long: "Draw the last start of a pod as a waterfall: admission, every step, every call to the runtime, and\n" +
			"the waits between them. Without a pod, list the recorded starts.\n\n" +
			"The network setup is shown within the sandbox step for the embedded runtime only. External runtimes\n" +
			"do not report how long their setup takes.",
		Example: "  berth trace web --depth 1",
		Args:    command.Usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listTimelines(cmd, &f.Output)
			}
			return a.trace(cmd, &f, args[0])
		},
	}
	f.Scope.Add(cmd)
	f.Output.Add(cmd, "json", "yaml")
	cmd.Flags().IntVar(&f.depth, "depth", 0, "number of `levels` to draw; 0: all")
	cmd.ValidArgsFunction = a.CompletePod(&f.Scope)
	return cmd
}

func (a *app) trace(cmd *cobra.Command, f *traceFlags, arg string) error {
	key, err := f.Pod(arg)
	if err != nil {
		return err
	}
	if f.depth < 0 {
		return client.Next(fmt.Errorf("--depth %d is negative", f.depth), "give a number of levels, or 0 for all")
	}
	line, err := a.RootClient().Pod(key).Timeline(cmd.Context())
	if err != nil {
		return err
	}
	if f.Structured() {
		return f.Object(cmd.OutOrStdout(), line)
	}
	width, color := screen(cmd.OutOrStdout())
	return timeline.Draw(cmd.OutOrStdout(), *line, width, timeline.DrawOptions{Color: color, Depth: f.depth})
}

// screen returns the width of the output in columns, and whether to use colors (no-color.org).
func screen(w io.Writer) (width int, color bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return plainWidth, false
	}
	color = os.Getenv("NO_COLOR") == ""
	if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
		return columns, color
	}
	return plainWidth, color
}

func (a *app) listTimelines(cmd *cobra.Command, out *command.Output) error {
	lines, err := a.RootClient().Timelines(cmd.Context())
	if err != nil {
		return err
	}
	if out.Structured() {
		return out.Object(cmd.OutOrStdout(), api.TimelineList{TypeMeta: api.Type("TimelineList"), Items: lines})
	}
	if len(lines) == 0 {
		nothing(cmd, "recorded starts", "")
	}
	t := printer.NewTable(cmd.OutOrStdout(), "NAMESPACE", "POD", "STATE", "TOOK", "AGE", "PROBLEM")
	now := time.Now()
	for _, l := range lines {
		took := "-"
		if !l.End.IsZero() {
			took = l.End.Sub(l.Start).Round(time.Millisecond).String()
		}
		t.Row(l.Namespace, l.Name, string(l.State()), took, duration.HumanDuration(now.Sub(l.Start)), l.Err)
	}
	return t.Flush()
}

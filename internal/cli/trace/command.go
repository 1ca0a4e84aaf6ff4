package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/terminal"
	"github.com/berth-run/berth/internal/record/timeline"
	"github.com/berth-run/berth/internal/record/timeline/compare"
)

type flags struct {
	command.Scope
	command.Output
	depth, last int
	svg         string
}

// Command returns "berth trace".
func Command(a *command.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "trace [POD]",
		Short: "Draw the start of a pod with every step, call and wait, or list recorded starts",
		Long: "Draw the last start of a pod as a waterfall: admission, every step, every call to the runtime, and\n" +
			"the waits between them. Without a pod, list the recorded starts. The agent keeps about 100 of them.\n\n" +
			"With --last, compare starts, of all pods or of one: for each step, P50 is the time that half of them\n" +
			"did not exceed, P99 the time that 99 % did not, and SLOWEST the pod that needed longest. Steps of\n" +
			"several containers, volumes or images are one step. Starts that failed are left out.\n\n" +
			"With --svg, write the waterfall as a picture that browsers show.\n\n" +
			"The network setup is shown within the sandbox step for the embedded runtime only. External runtimes\n" +
			"do not report how long their setup takes.",
		Example: "  berth trace web --depth 1\n  berth trace --last 20 --depth 1\n  berth trace web --svg web.svg",
		Args:    command.Usage(cobra.MaximumNArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return trace(a, cmd, &f, args) },
	}
	f.Scope.Add(cmd)
	f.Output.Add(cmd, "json", "yaml")
	cmd.Flags().IntVar(&f.depth, "depth", 0, "number of `levels` to draw; 0: all")
	cmd.Flags().IntVar(&f.last, "last", 0, "compare this `number` of starts, the latest ones")
	cmd.Flags().StringVar(&f.svg, "svg", "", "`file` to write as a picture, or - for standard output")
	cmd.MarkFlagsMutuallyExclusive("svg", "last")
	cmd.MarkFlagsMutuallyExclusive("svg", "output")
	command.Mark(cmd.MarkFlagFilename("svg", "svg"))
	cmd.ValidArgsFunction = a.CompletePod(&f.Scope)
	return cmd
}

func trace(a *command.App, cmd *cobra.Command, f *flags, args []string) error {
	switch {
	case f.depth < 0:
		return client.Next(fmt.Errorf("--depth %d is negative", f.depth), "give a number of levels, or 0 for all")
	case cmd.Flags().Changed("last") && f.last < 1:
		return client.Next(fmt.Errorf("--last %d compares no start", f.last), "give the number of starts to compare")
	case f.last > 0:
		return compareStarts(a, cmd, f, args)
	case len(args) == 0 && f.svg != "":
		return client.Next(errors.New("--svg draws the start of one pod"),
			`name the pod; "berth trace" lists the starts`)
	case len(args) == 0:
		return list(a, cmd, &f.Output)
	}
	key, err := f.Pod(args[0])
	if err != nil {
		return err
	}
	line, err := a.RootClient().Pod(key).Timeline(cmd.Context())
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch {
	case f.Structured():
		return f.Object(w, line)
	case f.svg == "-":
		return timeline.SVG(w, *line, f.depth)
	case f.svg != "":
		return writePicture(f.svg, *line, f.depth)
	}
	screen := terminal.Of(w)
	return timeline.Draw(w, *line, screen.Columns(),
		timeline.DrawOptions{Color: screen.Color, Depth: f.depth})
}

// none is printed on standard error, so that it does not end up in a pipe.
const none = "No recorded starts found"

// writePicture writes the waterfall of a start to a file.
func writePicture(file string, line timeline.Timeline, depth int) error {
	const mode = 0o644
	var picture bytes.Buffer
	err := timeline.SVG(&picture, line, depth)
	if err == nil {
		err = os.WriteFile(file, picture.Bytes(), mode)
	}
	if err != nil {
		return client.Next(fmt.Errorf("write picture: %w", err), "give --svg a path that can be written, or -")
	}
	return nil
}

// compareStarts shows how long the steps of several starts took.
func compareStarts(a *command.App, cmd *cobra.Command, f *flags, args []string) error {
	n := f.last
	if len(args) > 0 {
		n = 1 << 20 // all: the agent keeps far fewer
	}
	lines, err := client.LastTimelines(cmd.Context(), a.RootClient(), n)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		key, err := f.Pod(args[0])
		if err != nil {
			return err
		}
		lines = slices.DeleteFunc(lines, func(t timeline.Timeline) bool {
			return t.Namespace != key.Namespace || t.Name != key.Name
		})
		lines = lines[max(0, len(lines)-f.last):]
	}
	c := compare.Starts(lines, f.depth)
	w := cmd.OutOrStdout()
	if f.Structured() {
		return f.Object(w, struct {
			metav1.TypeMeta    `json:",inline"`
			compare.Comparison `json:",inline"`
		}{api.Type("StartComparison"), c})
	}
	if c.Starts == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), none)
		return nil
	}
	fmt.Fprintf(w, "%d starts since %s ago, of which %d were ready\n", c.Starts,
		duration.HumanDuration(time.Since(lines[0].Start)), c.Ready)
	t := printer.NewTable(w, "STEP", "STARTS", "P50", "P99", "SLOWEST")
	for _, s := range c.Steps {
		t.Row(strings.Repeat("  ", s.Level)+s.Name, fmt.Sprint(s.Starts), took(s.P50), took(s.P99),
			s.Slowest.Namespace+"/"+s.Slowest.Name)
	}
	return t.Flush()
}

// took returns a duration with three digits or more, such as 1.23ms, 45.6ms or 7.891s.
func took(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// list lists the recorded starts.
func list(a *command.App, cmd *cobra.Command, out *command.Output) error {
	lines, err := a.RootClient().Timelines(cmd.Context())
	if err != nil {
		return err
	}
	if out.Structured() {
		return out.Object(cmd.OutOrStdout(), api.TimelineList{TypeMeta: api.Type("TimelineList"), Items: lines})
	}
	if len(lines) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), none)
	}
	t := printer.NewTable(cmd.OutOrStdout(), "NAMESPACE", "POD", "STATE", "TOOK", "AGE", "PROBLEM")
	t.Style("STATE", stateStyle)
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

// stateStyle returns the style of the state of a start.
func stateStyle(state string, _ []string) terminal.Style {
	switch timeline.State(state) {
	case timeline.StateReady:
		return terminal.Good
	case timeline.StateFailed, timeline.StateInterrupted:
		return terminal.Bad
	case timeline.StateOpen:
	}
	return terminal.Waiting
}

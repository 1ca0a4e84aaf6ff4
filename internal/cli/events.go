package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
)

// eventFlags holds the flags of commands that list events.
type eventFlags struct {
	listFlags
	of string // pod/NAME
}

func eventsCommand(a *app) *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "List the events of pods, or follow them with -w",
		Example: "  berth events --for pod/web -w",
		Args:    command.Usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listEvents(cmd, &f) },
	}
	f.AddAll(cmd)
	f.Output.Add(cmd, "json", "yaml", "wide", "name")
	cmd.Flags().StringVar(&f.of, "for", "", "only the events of one pod: `pod/NAME`")
	cmd.Flags().StringVar(&f.fields, "field-selector", "", "field `selector`, such as type=Warning")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "keep showing new events")
	command.Mark(cmd.RegisterFlagCompletionFunc("for", a.CompletePodOf(&f.Scope)))
	return cmd
}

// eventPrinter prints events in the chosen format.
type eventPrinter struct {
	w     io.Writer
	f     *eventFlags
	table printer.Events
}

func (ep eventPrinter) print(e *corev1.Event) error {
	switch {
	case ep.f.Structured():
		return ep.f.Object(ep.w, e)
	case ep.f.Format == "name":
		_, err := fmt.Fprintf(ep.w, "event/%s\n", e.Name)
		return err
	}
	ep.table.Add(e, time.Now())
	return nil
}

func (f *eventFlags) selection() (client.Select, error) {
	sel := f.listFlags.selection()
	if f.of == "" {
		return sel, nil
	}
	key, err := f.Pod(f.of)
	if err != nil {
		return sel, err
	}
	sel.Fields = eventsOf(key.Name) + and(sel.Fields)
	return sel, nil
}

func and(selector string) string {
	if selector == "" {
		return ""
	}
	return "," + selector
}

// eventsOf returns the field selector for a pod's events.
func eventsOf(pod string) string { return "involvedObject.kind=Pod,involvedObject.name=" + pod }

func (a *app) listEvents(cmd *cobra.Command, f *eventFlags) error {
	sel, err := f.selection()
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	ep := eventPrinter{w, f, printer.NewEvents(w, printer.Options{Wide: f.Wide(), Namespaces: f.All})}
	if f.watch {
		return show(a.Client().WatchEvents(cmd.Context(), sel), ep.print, ep.table.Flush)
	}
	list, err := a.RootClient().Events(cmd.Context(), sel)
	if err != nil {
		return err
	}
	if f.Structured() {
		return f.Object(w, list)
	}
	for i := range list.Items {
		if err := ep.print(&list.Items[i]); err != nil {
			return err
		}
	}
	if len(list.Items) == 0 {
		nothing(cmd, "events", f.Selected())
	}
	return ep.table.Flush()
}

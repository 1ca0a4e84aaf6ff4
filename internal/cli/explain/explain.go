package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
)

// ErrNotAdmitted means that at least one pod would not be admitted now. The reasons have been printed.
var ErrNotAdmitted = errors.New("a pod would not be admitted")

// StatusNotAdmitted is the exit status of the command for ErrNotAdmitted.
const StatusNotAdmitted = 2

// Command returns "berth explain".
func Command(a *command.App) *cobra.Command {
	var namespace, format string
	pressure := false
	cmd := &cobra.Command{
		Use:   "explain FILE...|--pressure",
		Short: "Show whether the agent would admit the pods of manifests now, and why not",
		Long: `Check the pods of manifests against the admission rules of this node, without applying them. The
output has the result of each rule, and the CPUs, memory and devices that the pod would hold
exclusively. Each pod is checked as if it alone were applied now and replaced a pod of the same name.
The file - is standard input. The rules are described in docs/admission.md.

With --pressure and without a file, show how far the node is from evicting pods, and the pods in
their order of eviction (docs/eviction.md). That needs an agent.

The exit status is 0 if all pods would be admitted, 2 if one would not (not yet, blocked, rejected or
invalid), and 1 for an error.`,
		Example: "  berth explain web.yaml\n  berth explain --pressure",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !pressure:
				return client.Next(errors.New("no manifest is named"), "usage: "+cmd.UseLine())
			case len(args) > 0 && pressure:
				return client.Next(errors.New("--pressure is about the pods that run, not about manifests"),
					"leave out the files, or --pressure")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			if !slices.Contains([]string{"", "json", "yaml"}, format) {
				return client.Next(fmt.Errorf("output format %q is not known", format), "use one of json, yaml")
			}
			if pressure {
				return explainPressure(cmd, a.Client(), format) // nothing on disk has the pressure
			}
			all := api.ExplanationList{TypeMeta: api.Type("ExplanationList"), Items: []api.Explanation{}}
			for _, name := range files {
				data, err := command.ReadManifest(cmd.InOrStdin(), name)
				if err != nil {
					return err
				}
				items, err := client.Explanations(cmd.Context(), a.RootClient(), data,
					client.Apply{Namespace: namespace, Origin: name})
				if err != nil {
					return err
				}
				all.Items = append(all.Items, items...)
			}
			return errors.Join(show(cmd.OutOrStdout(), all, format), judge(all.Items))
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "`namespace` for pods without one")
	cmd.Flags().BoolVar(&pressure, "pressure", false, "show which pods would be evicted first")
	cmd.Flags().StringVarP(&format, "output", "o", "", "output `format`: json, yaml")
	return cmd
}

// explainPressure shows the signals of eviction, and the pods in their order of eviction.
func explainPressure(cmd *cobra.Command, agent *client.Client, format string) error {
	p, err := client.Pressure(cmd.Context(), agent, true)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if format != "" {
		return structured(w, p, format)
	}
	if len(p.Signals) == 0 && p.Problem == "" {
		_, err := fmt.Fprintln(w, "There are no thresholds, so no pod is ever evicted.")
		return err
	}
	return errors.Join(printer.Signals(w, p), printer.EvictionOrders(w, p))
}

func judge(items []api.Explanation) error {
	if slices.ContainsFunc(items, func(e api.Explanation) bool { return e.Verdict != api.Admitted }) {
		return ErrNotAdmitted
	}
	return nil
}

// structured writes v as JSON or YAML.
func structured(w io.Writer, v any, format string) error {
	if format == "yaml" {
		data, err := yaml.Marshal(v)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func show(w io.Writer, all api.ExplanationList, format string) error {
	if format != "" {
		return structured(w, all, format)
	}
	if len(all.Items) == 0 {
		_, err := fmt.Fprintln(w, "The manifests have no pods.")
		return err
	}
	for i, e := range all.Items {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := text(w, e); err != nil {
			return err
		}
	}
	return nil
}

// text prints an explanation as text for people.
func text(w io.Writer, e api.Explanation) error {
	fmt.Fprintf(w, "pod %s/%s: %s\n", e.Namespace, e.Name, line(e.Answer))
	if e.Replaces != "" {
		fmt.Fprintf(w, "In the place of pod %s.\n", e.Replaces)
	}
	if len(e.Preempt) > 0 {
		fmt.Fprintf(w, "It is critical: %s would be ended to make room.\n", strings.Join(e.Preempt, ", "))
	}
	if len(e.Rules) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := printer.NewTable(w, "RULE", "ANSWER", "WHY")
	for _, r := range e.Rules {
		t.Row(r.Rule, r.Verdict, because(r.Answer))
	}
	if err := t.Flush(); err != nil || len(e.Gets) == 0 {
		return err
	}
	fmt.Fprintln(w)
	t = printer.NewTable(w, "CONTAINER", "CPUS", "MEMORY", "DEVICES")
	for _, g := range e.Gets {
		name := g.Container
		if name == "" {
			name = "(the pod)"
		}
		t.Row(name, orDash(g.CPUs), orDash(memory(g.Memory)), orDash(devices(g.Devices)))
	}
	return t.Flush()
}

func line(a api.Answer) string {
	if why := because(a); why != "" {
		return a.Verdict + ": " + why
	}
	return a.Verdict
}

func because(a api.Answer) string {
	text := a.Message
	if a.Reason != "" {
		text = a.Reason + ": " + text
	}
	if a.Until != nil {
		text += " (until " + a.Until.Local().Format(time.TimeOnly) + ")"
	}
	return text
}

func memory(blocks []api.MemoryGrant) string {
	parts := make([]string, len(blocks))
	for i, b := range blocks {
		parts[i] = fmt.Sprintf("%s %s of nodes %s", resource.NewQuantity(b.Bytes, resource.BinarySI), b.Resource,
			strings.Trim(fmt.Sprint(b.Nodes), "[]"))
	}
	return strings.Join(parts, ", ")
}

func devices(ids map[string][]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		parts = append(parts, name+": "+strings.Join(ids[name], " "))
	}
	return strings.Join(parts, ", ")
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

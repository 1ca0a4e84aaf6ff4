package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api/client"
)

// output is the flag -o.
type output struct {
	format string
	known  []string
}

func (o *output) add(cmd *cobra.Command, known ...string) {
	o.known = known
	cmd.Flags().VarP(o, "output", "o", "output `format`: "+strings.Join(known, ", "))
	mark(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)))
}

func (o *output) String() string { return o.format }

// Set sets the format that the user typed.
func (o *output) Set(format string) error {
	if !slices.Contains(o.known, format) {
		return fmt.Errorf("use one of %s", strings.Join(o.known, ", "))
	}
	o.format = format
	return nil
}

// Type returns the type name that the help shows.
func (o *output) Type() string { return "format" }

func (o *output) wide() bool { return o.format == "wide" }

// structured reports whether the format shows whole objects.
func (o *output) structured() bool { return o.format == "json" || o.format == "yaml" }

// object writes v as JSON or YAML. Several calls write a stream of documents.
func (o *output) object(w io.Writer, v any) error {
	if o.format == "yaml" {
		data, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(append([]byte("---\n"), data...))
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// formatFlag adds the flag -o to a command of a subpackage. The returned function writes a result in the
// format of the flag. It returns false if the flag is not set, and then writes nothing.
func formatFlag(cmd *cobra.Command) func(io.Writer, any) (bool, error) {
	out := new(output)
	out.add(cmd, "json", "yaml")
	return func(w io.Writer, result any) (bool, error) {
		if !out.structured() {
			return false, nil
		}
		return true, out.object(w, result)
	}
}

func unknownResource(name string) error {
	return client.Next(fmt.Errorf("the agent has no resource %q", name),
		"it has pods, events, images, problems, configmaps, secrets, persistentvolumeclaims, persistentvolumes and "+
			"runtimeclasses")
}

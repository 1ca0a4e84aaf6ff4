package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Output is the flag -o. Format is its value.
type Output struct {
	Format string
	known  []string
}

// Add adds the flag -o with the known formats.
func (o *Output) Add(cmd *cobra.Command, known ...string) {
	o.known = known
	cmd.Flags().VarP(o, "output", "o", "output `format`: "+strings.Join(known, ", "))
	Mark(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)))
}

func (o *Output) String() string { return o.Format }

// Set sets the format that the user typed.
func (o *Output) Set(format string) error {
	if !slices.Contains(o.known, format) {
		return fmt.Errorf("use one of %s", strings.Join(o.known, ", "))
	}
	o.Format = format
	return nil
}

// Type returns the type name that the help shows.
func (o *Output) Type() string { return "format" }

// Wide reports whether a table has its extra columns.
func (o *Output) Wide() bool { return o.Format == "wide" }

// Structured reports whether the format shows whole objects.
func (o *Output) Structured() bool { return o.Format == "json" || o.Format == "yaml" }

// Object writes v as JSON or YAML. Several calls write a stream of documents.
func (o *Output) Object(w io.Writer, v any) error {
	if o.Format == "yaml" {
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

// FormatFlag adds the flag -o to a command of a subpackage. The returned function writes a result in the
// format of the flag. It returns false if the flag is not set, and then writes nothing.
func FormatFlag(cmd *cobra.Command) func(io.Writer, any) (bool, error) {
	out := new(Output)
	out.Add(cmd, "json", "yaml")
	return func(w io.Writer, result any) (bool, error) {
		if !out.Structured() {
			return false, nil
		}
		return true, out.Object(w, result)
	}
}

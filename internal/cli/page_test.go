package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The examples in the help of the commands, which docs/commands.md shows, have commands, flags and arguments that
// exist.
func TestExamplesOfCommands(t *testing.T) {
	found := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "  ") // a remark may follow
			if line == "" {
				continue
			}
			found++
			if err := parses(strings.Fields(line)); err != nil {
				t.Errorf("%s: the example %q: %v", cmd.CommandPath(), line, err)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRoot(&app{}))
	if found < 40 {
		t.Errorf("only %d examples were found", found)
	}
}

// parses reports what is wrong with a command line. It runs nothing.
func parses(words []string) error {
	cmd, args, err := newRoot(&app{}).Find(words[1:])
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

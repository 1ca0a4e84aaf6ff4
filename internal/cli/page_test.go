package cli

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/base/golden"
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

// docs/zh/commands.md is the page with the text of each command in Chinese. With -update the test copies the synopses
// and flags from docs/commands.md. The text of a new command is English until its translation.
func TestCommandsAreDocumentedInChinese(t *testing.T) {
	const path, introduction = "../../docs/zh/commands.md", ""
	texts := map[string]string{} // by command; introduction is the text before the first one
	for name, section := range sections(t, path) {
		texts[name], _, _ = strings.Cut(section, "\n```\n")
		if name != introduction && !strings.ContainsFunc(texts[name], han) {
			t.Errorf("%s: translate the text of %s", path, name)
		}
	}
	var page strings.Builder
	page.WriteString(texts[introduction])
	for name, section := range sections(t, "../../docs/commands.md") {
		text, synopsis, _ := strings.Cut(section, "\n```\n")
		if name != introduction {
			fmt.Fprintf(&page, "\n## %s\n%s\n```\n%s", name, cmp.Or(texts[name], text), synopsis)
		}
	}
	golden.File(t, path, page.String())
}

// sections yields the parts of a page with the headings before them, in order.
func sections(t *testing.T, path string) iter.Seq2[string, string] {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(string, string) bool) {
		for i, section := range strings.Split("\n"+string(page), "\n## ") {
			heading := ""
			if i > 0 {
				heading, section, _ = strings.Cut(section, "\n")
			} else {
				section = section[1:]
			}
			if !yield(heading, section) {
				return
			}
		}
	}
}

func han(r rune) bool { return unicode.Is(unicode.Han, r) }

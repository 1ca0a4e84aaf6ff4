package test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/cli"
)

// refused runs berth and wants an error for people: one line that matches, and the next step.
func (h *harness) refused(ts *testscript.TestScript, args []string) {
	h.exits(ts, append([]string{"1"}, args[1:]...))
	want, err := regexp.Compile(`(?m)^error: .*` + args[0] + `.*\nnext: .+$`)
	ts.Check(err)
	if !want.MatchString(ts.ReadFile("stderr")) {
		ts.Fatalf("the last two lines of standard error are not\nerror: ...%s...\nnext: ...", args[0])
	}
}

// tried matches the rows of a script that run berth, with what follows the flags of all commands.
var tried = regexp.MustCompile(`(?m)^(?:exits \d+|refused '.*?'|exec (?:sh -c ')?berth)(?: --root-dir \$ROOT)? (.*)$`)

// withAgent matches the lines of a script while an agent runs.
var withAgent = regexp.MustCompile(`(?ms)^agent start$.*?^agent stop$`)

// offline-all.txtar tries every command on a root directory without an agent.
func TestEveryCommandRunsWithoutAgent(t *testing.T) {
	script, err := os.ReadFile("script/offline-all.txtar")
	if err != nil {
		t.Fatal(err)
	}
	rows := tried.FindAllStringSubmatch(withAgent.ReplaceAllString(string(script), ""), -1)
	covered := func(path string) bool {
		for _, row := range rows {
			if strings.HasPrefix(row[1]+" ", path+" ") {
				return true
			}
		}
		return false
	}
	found := 0
	var visit func(cmd *cobra.Command, path string)
	visit = func(cmd *cobra.Command, path string) {
		for _, sub := range cmd.Commands() {
			at := strings.TrimSpace(path + " " + sub.Name())
			// "berth top" works by itself beside its subcommands. Other groups only print their help.
			if !sub.HasSubCommands() || at == "top" {
				found++
				if !covered(at) {
					t.Errorf("offline-all.txtar does not try berth %s", at)
				}
			}
			visit(sub, at)
		}
	}
	visit(cli.Tree(), "")
	if found < 45 {
		t.Errorf("only %d commands were found", found)
	}
}

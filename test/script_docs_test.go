package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// shellBlock matches a block of commands in a page.
var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// blocks returns the blocks of commands in a page.
func blocks(page string) (all []string, err error) {
	text, err := os.ReadFile(filepath.Join("..", page))
	for _, m := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all, err
}

// pageBerth stands in for berth in the blocks of a page. It adds what makes a command work in the place of a script,
// and only that: a pod in the foreground ends when it is ready, a log that is followed does not block the commands
// after it, and the workload's image has a program of its own instead of a shell.
const pageBerth = `#!/bin/sh
case "$*" in
"run "*) shift; exec %[1]s --root-dir "$ROOT" run --config "$CONFIG" --exit-when-ready "$@" ;;
"logs -f "*) %[1]s --root-dir "$ROOT" "$@" >>followed 2>&1 & exit ;;
"exec web -- sh") exec %[1]s --root-dir "$ROOT" exec web -- /workload print "in the pod" ;;
esac
exec %[1]s --root-dir "$ROOT" "$@"
`

// block runs the block of a page that has a text, as it is written there.
func (h *harness) block(ts *testscript.TestScript, args []string) {
	all, err := blocks(args[0])
	ts.Check(err)
	dir := ts.MkAbs(".")
	bin, top := filepath.Join(dir, "bin"), filepath.Dir(filepath.Dir(h.bin))
	ts.Check(os.MkdirAll(bin, 0o755))
	ts.Check(os.WriteFile(filepath.Join(bin, "berth"), fmt.Appendf(nil, pageBerth, h.bin), 0o755))
	ts.Check(os.WriteFile(filepath.Join(bin, "make"), []byte("#!/bin/sh\n"), 0o755)) // these tests need a build
	for link, target := range map[string]string{"bin/workload.tar": h.archive,
		"examples": filepath.Join(top, "examples")} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil && !os.IsExist(err) {
			ts.Fatalf("%v", err)
		}
	}
	for _, b := range all {
		if strings.Contains(b, args[1]) {
			ts.Check(ts.Exec("sh", "-exc", "PATH="+bin+":$PATH\n"+b))
			return
		}
	}
	ts.Fatalf("%s has no block with %q", args[0], args[1])
}

// notRun are the blocks that no script runs, by a text in them, with the reason.
var notRun = map[string]string{
	"make run":         "CI and the example are made of these targets",
	"berth init --now": "a script installs nothing on the machine: init.txtar runs it for another root",
}

// Every command that README shows works as it is written.
func TestDocsCommandBlocksAreRun(t *testing.T) {
	const page = "README.md"
	all, err := blocks(page)
	if err != nil || len(all) < 4 {
		t.Fatalf("%d blocks, %v", len(all), err)
	}
	var run []string
	for _, script := range scriptFiles(t) {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^block `+page+` '(.*)'$`).FindAllStringSubmatch(string(text), -1) {
			run = append(run, m[1])
		}
	}
	for text := range notRun {
		run = append(run, text)
	}
	for _, b := range all {
		found := false
		for _, text := range run {
			found = found || strings.Contains(b, text)
		}
		if !found {
			t.Errorf("%s: no script runs the block\n%s", page, b)
		}
	}
}

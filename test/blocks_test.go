package test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inClone marks a block that builds or runs something in a clone of the project. TestBlocksInClone runs it.
const inClone = "build"

// slow are the marks of blocks that take too long for make test, with the reason. TestSlowBlocks runs them, which is
// the target pages of the Makefile.
var slow = map[string]string{
	"bench":   "a measurement takes minutes and needs a quiet machine",
	"release": "two builds of the packages for each architecture take minutes, and many with empty caches",
}

var slowBlocks = flag.Bool("pages", false, "run the blocks of pages that take minutes")

// makeTest stands in for make in the blocks of a page. It passes everything on to make, except "make test", of which
// the test itself is a part. It checks that CI runs "make test".
const makeTest = `#!/bin/sh
[ "$*" = test ] || exec %s "$@"
grep -qx 'exec make test' .ci/run
`

// runInClone runs the blocks of pages with these marks, as they are written there, in this clone of the project.
func runInClone(t *testing.T, marks ...string) {
	if os.Geteuid() != 0 {
		t.Skip("these commands run pods and install Debian packages, so they need root")
	}
	program, err := exec.LookPath("make")
	check(t, err)
	bin := t.TempDir()
	check(t, os.WriteFile(filepath.Join(bin, "make"), fmt.Appendf(nil, makeTest, program), 0o755))
	// The variables of a make that runs this test would change the next one.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	found := 0
	for _, page := range runPages(t) {
		all, err := blocks(page)
		check(t, err)
		for _, b := range all {
			if !slices.Contains(marks, b.mark) {
				continue
			}
			found++
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "sh", "-exc", b.text)
			cmd.Dir, cmd.Stdout, cmd.Stderr = "..", &out, &out
			cmd.Env = slices.Concat(env, []string{"PATH=" + bin + ":" + os.Getenv("PATH")})
			if err := cmd.Run(); err != nil {
				t.Errorf("%s: %v:\n%s\n%s", page, err, b.text, out.Bytes())
			}
		}
	}
	if found == 0 {
		t.Errorf("no block has a mark of %q", marks)
	}
}

func TestBlocksInClone(t *testing.T) { runInClone(t, inClone) }

func TestSlowBlocks(t *testing.T) {
	for mark, why := range slow {
		t.Run(mark, func(t *testing.T) {
			if !*slowBlocks {
				t.Skipf("%s; run make pages", why)
			}
			runInClone(t, mark)
		})
	}
}

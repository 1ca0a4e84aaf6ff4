package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-run/berth/internal/cli"
)

func TestWriteMakesAPageForEachCommandWithItsFlags(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir, root := t.TempDir(), cli.Tree()
	if err := write(dir, root); err != nil {
		t.Fatal(err)
	}
	pages := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd != root && (!cmd.IsAvailableCommand() || cmd.IsAdditionalHelpTopicCommand()) {
			return
		}
		pages++
		page := read(t, filepath.Join(dir, "man", strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1.gz"))
		if !strings.Contains(page, "Nov 2023") {
			t.Errorf("%s: the page lacks the date of SOURCE_DATE_EPOCH", cmd.CommandPath())
		}
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(page, `\-\-`+strings.ReplaceAll(f.Name, "-", `\-`)) &&
				!strings.Contains(page, "--"+f.Name) {
				t.Errorf("%s: the page lacks --%s", cmd.CommandPath(), f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	files, err := os.ReadDir(filepath.Join(dir, "man"))
	if err != nil || len(files) != pages || pages < 40 {
		t.Errorf("%d files for %d commands, error %v", len(files), pages, err)
	}
}

func TestWriteGivesTheSameBytesTwice(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := write(dir, cli.Tree()); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(one, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		first, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		second, err := os.ReadFile(two + strings.TrimPrefix(path, one))
		if err == nil && !bytes.Equal(first, second) {
			t.Errorf("%s has other bytes the second time", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each completion asks the program itself, so that it also completes the names of pods. bash checks its own one.
func TestCompletionsAskTheProgram(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir, cli.Tree()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"berth.bash", "_berth", "berth.fish"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), "__complete") {
			t.Errorf("%s does not call berth __complete, error %v", name, err)
		}
	}
	if out, err := exec.Command("bash", "-n", filepath.Join(dir, "berth.bash")).CombinedOutput(); err != nil {
		t.Errorf("bash: %v: %s", err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Command mkpages writes what packages have besides the program: manual pages (man/*.1.gz) and the completions of bash
// (berth.bash), zsh (_berth) and fish (berth.fish).
//
//	mkpages DIR
//
// The date in the manual pages is SOURCE_DATE_EPOCH, in seconds since 1970.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/berth-run/berth/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mkpages DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1], cli.Tree()); err != nil {
		fmt.Fprintln(os.Stderr, "mkpages:", err)
		os.Exit(1)
	}
}

func write(dir string, root *cobra.Command) error {
	if err := os.MkdirAll(filepath.Join(dir, "man"), 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	return errors.Join(
		manuals(filepath.Join(dir, "man"), root),
		root.GenBashCompletionFileV2(filepath.Join(dir, "berth.bash"), true),
		root.GenZshCompletionFile(filepath.Join(dir, "_berth")),
		root.GenFishCompletionFile(filepath.Join(dir, "berth.fish"), true),
	)
}

// manuals writes a manual page for each command.
func manuals(dir string, cmd *cobra.Command) error {
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := manuals(dir, sub); err != nil {
			return err
		}
	}
	var page, packed bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Source: "Berth", Manual: "Berth"}
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return fmt.Errorf("write the manual page of %s: %w", cmd.CommandPath(), err)
	}
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression) // without a name and a time
	if err != nil {
		return err
	}
	if _, err := w.Write(page.Bytes()); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	return os.WriteFile(filepath.Join(dir, name+".1.gz"), packed.Bytes(), 0o644)
}

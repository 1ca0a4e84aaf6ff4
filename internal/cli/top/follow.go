package top

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// clearScreen moves to the top left corner and clears what is below (ECMA-48).
const clearScreen = "\x1b[H\x1b[J"

// follow draws again and again. If the command has a terminal, each picture replaces the one before, and keys choose
// the order. Otherwise the pictures follow each other with an empty line between them.
func follow(cmd *cobra.Command, sort string, draw func(ctx context.Context, w io.Writer, sort string) error) error {
	ctx := cmd.Context()
	pressed, restore, err := readKeys(cmd)
	if err != nil {
		return err
	}
	defer restore()
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		case key := <-pressed:
			next, end := press(key, sort)
			if end {
				return nil
			}
			sort = next
		}
		var picture bytes.Buffer
		if err := draw(ctx, &picture, sort); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		text := picture.String()
		switch {
		case pressed != nil: // a raw terminal does not return the carriage by itself
			text = clearScreen + strings.ReplaceAll(text, "\n", "\r\n")
		case !first:
			text = "\n" + text
		}
		if _, err := io.WriteString(cmd.OutOrStdout(), text); err != nil {
			return err
		}
	}
}

// press returns the order after a key, and whether the key ends the command.
func press(key byte, sort string) (next string, end bool) {
	const interrupt, endOfInput = 3, 4 // Ctrl-C and Ctrl-D of a raw terminal
	switch key {
	case 'q', interrupt, endOfInput:
		return sort, true
	case 'c':
		return byCPU, false
	case 'm':
		return byMemory, false
	case 's':
		return byStall, false
	case 'n':
		return byName, false
	}
	return sort, false
}

// readKeys makes the terminal raw and returns the keys that are pressed. The channel is nil without a terminal.
func readKeys(cmd *cobra.Command) (pressed <-chan byte, restore func(), err error) {
	in, ok := cmd.InOrStdin().(*os.File)
	out, shown := cmd.OutOrStdout().(*os.File)
	if !ok || !shown || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil, func() {}, nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, nil, fmt.Errorf("read keys from the terminal: %w", err)
	}
	keys := make(chan byte)
	go func() { // it ends with the process: a read from a terminal cannot be ended
		var key [1]byte
		for {
			if n, err := in.Read(key[:]); err != nil || n == 0 {
				return
			}
			keys <- key[0]
		}
	}()
	return keys, func() { _ = term.Restore(int(in.Fd()), state) }, nil
}

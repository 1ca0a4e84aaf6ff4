package top

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth/internal/cli/terminal"
)

// The sequences of a terminal that shows pictures (ECMA-48 and xterm): a second screen, so that the user's own comes
// back at the end, and no cursor.
const (
	openScreen  = "\x1b[?1049h\x1b[?25l"
	closeScreen = "\x1b[?25h\x1b[?1049l"
)

// interactive reports whether the command reads keys from a terminal and draws on one.
func interactive(cmd *cobra.Command) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && terminal.Of(cmd.OutOrStdout()).Terminal
}

// follow draws again and again. If the command has a terminal, each picture replaces the one before, and keys choose
// the order. Otherwise the pictures follow each other with an empty line between them.
func follow(cmd *cobra.Command, sort string,
	draw func(ctx context.Context, p picture, sort string) error) (err error) {
	// A signal must not leave the terminal behind without a cursor.
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	out := cmd.OutOrStdout()
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
		screen := terminal.Of(out)
		var drawn bytes.Buffer
		if err := draw(ctx, picture{&drawn, screen.Color}, sort); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		text := drawn.String()
		switch {
		case pressed != nil:
			text = frame(help(sort), text, screen)
		case !first:
			text = "\n" + text
		}
		if _, err := io.WriteString(out, text); err != nil {
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
	}
	if sort == "" { // there is nothing to sort
		return sort, false
	}
	switch key {
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

// readKeys makes the terminal raw, opens its second screen, and returns the keys that are pressed. restore undoes it.
// The channel is nil without a terminal.
func readKeys(cmd *cobra.Command) (pressed <-chan byte, restore func(), err error) {
	if !interactive(cmd) {
		return nil, func() {}, nil
	}
	in, out := cmd.InOrStdin().(*os.File), cmd.OutOrStdout()
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, nil, fmt.Errorf("read keys from the terminal: %w", err)
	}
	fmt.Fprint(out, openScreen) // the first picture reports an error
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
	return keys, func() {
		fmt.Fprint(out, closeScreen)
		_ = term.Restore(int(in.Fd()), state) // there is no way to recover
	}, nil
}

package top

import (
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth/internal/cli/terminal"
)

// help returns the line above a picture.
func help(sort string) string {
	if sort == "" {
		return "berth top - q: end"
	}
	return "berth top - by " + sort + " - c: CPU, m: memory, s: stalls, n: name, q: end"
}

// frame returns the text that replaces the picture on a screen: the line of help, and as much of the text as fits. It
// clears each line behind its end, and the screen below the last line (ECMA-48). So nothing of the previous picture
// stays, and nothing flickers.
func frame(help, text string, screen terminal.Output) string {
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	lines := append([]string{terminal.Faint.Paint(screen.Color, help), ""},
		strings.Split(strings.TrimRight(text, "\n"), "\n")...)
	if screen.Height > 0 {
		lines = lines[:min(len(lines), screen.Height)]
	}
	for i, line := range lines {
		lines[i] = clip(line, screen.Width) + clearLine
	}
	return home + strings.Join(lines, "\r\n") + clearBelow // a raw terminal does not return the carriage by itself
}

// clip cuts a line to a number of visible characters, and keeps all its styles. 0 cuts nothing.
func clip(line string, width int) string {
	if width <= 0 {
		return line
	}
	var out strings.Builder
	for rest := line; rest != ""; {
		if strings.HasPrefix(rest, "\x1b[") {
			end := strings.IndexByte(rest, 'm') + 1
			if end == 0 {
				end = len(rest)
			}
			out.WriteString(rest[:end])
			rest = rest[end:]
			continue
		}
		_, size := utf8.DecodeRuneInString(rest)
		if width > 0 {
			out.WriteString(rest[:size])
			width--
		}
		rest = rest[size:]
	}
	return out.String()
}

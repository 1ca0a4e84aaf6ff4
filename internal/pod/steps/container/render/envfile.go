package render

import (
	"errors"
	"fmt"
	"strings"
)

// parseEnvFile finds a variable in an environment file (KEP-3721). Its lines are
//
//	NAME='value'   # the value as it is, which may go over several lines
//	NAME= ...      # the empty value, as a shell has it
//
// and blank lines and comments. As for the kubelet, who finds the name reads no
// further, what is wrong before it is an error, and the name that is not there
// has the empty value.
func parseEnvFile(text, name string) (string, error) {
	for line := 1; text != ""; line++ {
		var rest string
		rest, text = nextLine(text)
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" || rest[0] == '#' {
			continue
		}
		found, rest, ok := strings.Cut(rest, "=")
		switch {
		case !ok:
			return "", atLine(line, "there is no '='")
		case found == "" || strings.TrimRight(found, " \t") != found:
			return "", atLine(line, "the variable's name has to stand before '=', without a space between")
		case rest != strings.TrimLeft(rest, " \t"):
			if found == name {
				return "", nil
			}
			continue
		case rest == "" || rest[0] != '\'':
			return "", atLine(line, "the value has to be in single quotes")
		}
		value, lines, after, err := quoted(rest[1:], &text)
		if err != nil {
			return "", atLine(line, err.Error())
		}
		line += lines
		if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
			return "", atLine(line, "there is something behind the closing quote")
		}
		if found == name {
			return value, nil
		}
	}
	return "", nil
}

// quoted reads up to the closing quote: first the rest of a line, then the lines
// of text, which it takes away.
func quoted(rest string, text *string) (value string, lines int, after string, err error) {
	var b strings.Builder
	for {
		before, after, closed := strings.Cut(rest, "'")
		b.WriteString(before)
		if closed {
			return b.String(), lines, after, nil
		}
		if *text == "" {
			return "", lines, "", errors.New("the quote that begins there is not closed")
		}
		b.WriteByte('\n')
		rest, *text = nextLine(*text)
		lines++
	}
}

// nextLine cuts off a line; the carriage return of a DOS file is no part of it.
func nextLine(text string) (line, rest string) {
	line, rest, _ = strings.Cut(text, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}

func atLine(line int, what string) error { return fmt.Errorf("line %d: %s", line, what) }

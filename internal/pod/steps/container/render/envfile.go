package render

import (
	"errors"
	"fmt"
	"strings"
)

// parseEnvFile returns the value of a variable in an environment file (KEP-3721). Its lines are
//
//	NAME='value'   # the literal value, which may span several lines
//	NAME= ...      # the empty value, as in a shell
//
// and blank lines and comments. As in the kubelet, parsing stops at the name. An error before it is reported, one
// behind it is not. A name that does not occur has the empty value.
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
			return "", atLine(line, "the variable's name must stand directly before '=', without a space")
		case rest != strings.TrimLeft(rest, " \t"):
			if found == name {
				return "", nil
			}
			continue
		case rest == "" || rest[0] != '\'':
			return "", atLine(line, "the value must be in single quotes")
		}
		value, lines, after, err := quoted(rest[1:], &text)
		if err != nil {
			return "", atLine(line, err.Error())
		}
		line += lines
		if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
			return "", atLine(line, "only a comment may follow the closing quote")
		}
		if found == name {
			return value, nil
		}
	}
	return "", nil
}

// quoted reads up to the closing quote: first the rest of a line, then further lines, which it removes from text.
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

// nextLine cuts off the first line, without its line feed and a carriage return before it.
func nextLine(text string) (line, rest string) {
	line, rest, _ = strings.Cut(text, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}

func atLine(line int, what string) error { return fmt.Errorf("line %d: %s", line, what) }

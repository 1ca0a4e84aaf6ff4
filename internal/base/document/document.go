package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// MaxSize is the most that is read of one file or response, in bytes. It is the
// kubelet's limit for a manifest (10 MiB).
const MaxSize = 10 << 20

// ErrTooLarge is returned for input of more than MaxSize bytes.
var ErrTooLarge = errors.New("is larger than 10 MiB")

// ReadAll reads r to its end, or fails with ErrTooLarge as soon as it is clear
// that there is more than MaxSize.
func ReadAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxSize {
		return nil, ErrTooLarge
	}
	return data, nil
}

// Document is one document of a stream.
type Document struct {
	// Index counts the documents of the stream that are not empty, from 1.
	Index int
	// Line is where it begins in the stream, from 1.
	Line int
	Text []byte
}

// Split cuts a stream at the lines that YAML reserves for it (--- and ...).
// Documents of nothing but blank lines, comments and directives are left out.
// The cut does not depend on what is between: a document that cannot be read
// does not reach into its neighbours.
func Split(stream []byte) []Document {
	stream = bytes.TrimPrefix(stream, []byte("\ufeff"))
	var docs []Document
	text, first, line := []byte(nil), 1, 0
	flush := func() {
		if !blank(text) {
			docs = append(docs, Document{Index: len(docs) + 1, Line: first, Text: text})
		}
		text = nil
	}
	for l := range bytes.Lines(stream) {
		line++
		rest, ok := marker(l)
		if !ok {
			text = append(text, l...)
			continue
		}
		flush()
		text, first = append(text, rest...), line
	}
	flush()
	return docs
}

// marker recognises a line that ends a document and returns what is behind the mark.
func marker(line []byte) ([]byte, bool) {
	for _, mark := range []string{"---", "..."} {
		if rest, ok := bytes.CutPrefix(line, []byte(mark)); ok &&
			(len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0]))) {
			return rest, true
		}
	}
	return nil, false
}

func blank(text []byte) bool {
	for l := range bytes.Lines(text) {
		l = bytes.TrimSpace(l)
		if len(l) > 0 && l[0] != '#' && l[0] != '%' {
			return false
		}
	}
	return true
}

// JSON is the document as JSON. The error is Faults: of the syntax, or of keys
// that are given twice.
func (d Document) JSON() ([]byte, error) {
	text := bytes.TrimSpace(d.Text)
	if len(text) > 0 && text[0] == '{' && json.Valid(text) {
		return text, nil
	}
	data, err := sigsyaml.YAMLToJSONStrict(d.Text)
	if err == nil {
		return data, nil
	}
	if isJSON(text) {
		if fault, ok := jsonSyntax(d, text); ok {
			return nil, Faults{fault}
		}
	}
	if faults := d.duplicates(); len(faults) > 0 {
		return nil, faults
	}
	return nil, d.yamlFaults(err)
}

// isJSON guesses from the beginning which of the two a broken document was meant to be.
func isJSON(text []byte) bool {
	rest, ok := bytes.CutPrefix(text, []byte("{"))
	return ok && bytes.HasPrefix(bytes.TrimSpace(rest), []byte(`"`))
}

func jsonSyntax(d Document, text []byte) (Fault, bool) {
	var whatever json.RawMessage
	syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &whatever))
	if !ok {
		return Fault{}, false
	}
	before := bytes.Index(d.Text, text) + int(syntax.Offset)
	line := d.Line + bytes.Count(d.Text[:min(before, len(d.Text))], []byte("\n"))
	return Fault{Line: line, Text: syntax.Error()}, true
}

// yamlFaults takes the line numbers out of the YAML parser's message. Where it
// trips over an indentation it names the line before.
func (d Document) yamlFaults(err error) Faults {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n")
	var faults Faults
	for message := range strings.SplitSeq(text, "\n") {
		f := Fault{Line: d.Line, Text: strings.TrimSpace(message)}
		if number, rest, ok := strings.Cut(strings.TrimPrefix(f.Text, "line "), ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				f = Fault{Line: d.Line + n - 1, Text: rest}
			}
		}
		faults = append(faults, f)
	}
	return faults
}

// Decode puts data into the value that into points to. data is d's JSON, or the
// part of it that path leads to: names of fields and indices of lists. The error
// is Faults.
func (d Document) Decode(data []byte, into any, path ...any) error {
	strict, err := sigsjson.UnmarshalStrict(data, into)
	if err == nil && len(strict) == 0 {
		return nil
	}
	if faults := d.explain(into, path); len(faults) > 0 {
		return faults
	}
	// The explanation knows less than the decoder: better its words than none.
	var faults Faults
	for _, e := range append(strict, err) {
		if e != nil {
			faults = append(faults,
				Fault{Line: d.Line, Field: join(path), Text: strings.TrimPrefix(e.Error(), "json: ")})
		}
	}
	return faults
}

// LineOf is the line of what path leads to, or of the nearest thing above it.
func (d Document) LineOf(path ...any) int {
	_, line := d.find(path)
	return line
}

// Fault is one thing wrong with a document.
type Fault struct {
	// Line in the stream, from 1.
	Line int
	// Field is a path such as spec.containers[0].image; empty for a fault of the syntax.
	Field string
	Text  string
}

func (f Fault) Error() string {
	if f.Field == "" {
		return fmt.Sprintf("line %d: %s", f.Line, f.Text)
	}
	return fmt.Sprintf("line %d: %s: %s", f.Line, f.Field, f.Text)
}

// Faults is everything wrong with a document; never empty when returned as an error.
type Faults []Fault

func (f Faults) Error() string {
	all := make([]string, len(f))
	for i := range f {
		all[i] = f[i].Error()
	}
	return strings.Join(all, "; ")
}

// join renders a path: items[0].spec.
func join(path []any) string {
	s := ""
	for _, step := range path {
		switch step := step.(type) {
		case int:
			s = at(s, step)
		case string:
			s = child(s, step)
		}
	}
	return s
}

func child(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func at(path string, index int) string { return fmt.Sprintf("%s[%d]", path, index) }

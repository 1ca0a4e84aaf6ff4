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

// MaxSize is the largest file or response that is read, in bytes. It is the kubelet's limit for a manifest (10 MiB).
const MaxSize = 10 << 20

// ErrTooLarge is the error for input of more than MaxSize bytes.
var ErrTooLarge = errors.New("is larger than 10 MiB")

// ReadAll reads r to its end. It fails with ErrTooLarge as soon as it has read more than MaxSize.
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
	// Index counts the non-empty documents of the stream, from 1.
	Index int
	// Line is the document's first line in the stream, from 1.
	Line int
	Text []byte
}

// Split cuts a stream at the lines that YAML reserves for that (--- and ...). It skips documents with only blank lines,
// comments and directives. It does not parse the text, so that a broken document does not affect its neighbours.
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

// marker recognises a line that ends a document. It returns the text after the mark.
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

// JSON is the document as JSON. The error is Faults: of the syntax, or of duplicate keys.
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

// LenientJSON is JSON for a document that is used although keys are given twice: the last value counts. Faults lists
// these keys.
func (d Document) LenientJSON() (data []byte, twice Faults, err error) {
	if data, err = d.JSON(); err == nil {
		return data, nil, nil
	}
	twice = d.duplicates()
	lenient, broken := sigsyaml.YAMLToJSON(d.Text)
	if broken != nil || len(twice) == 0 {
		return nil, nil, err
	}
	return lenient, twice, nil
}

// isJSON guesses from the beginning whether a broken document was meant to be JSON.
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

// yamlFaults takes the line numbers from the YAML parser's message. For a wrong indentation, the parser names the line
// before.
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

// Decode puts data into the value that into points to. data is the JSON of the document, or of the part at path: names
// of fields and indices of lists. The error is Faults.
func (d Document) Decode(data []byte, into any, path ...any) error {
	ignored, err := d.DecodeLenient(data, into, path...)
	if err == nil && len(ignored) > 0 {
		return ignored
	}
	return err
}

// DecodeLenient is Decode for a document that is used without its unknown fields. Ignored lists these fields, and keys
// that are given twice.
func (d Document) DecodeLenient(data []byte, into any, path ...any) (ignored Faults, err error) {
	if faults := d.costly(data, into, path); len(faults) > 0 {
		return nil, faults
	}
	strict, err := sigsjson.UnmarshalStrict(data, into)
	if err == nil && len(strict) == 0 {
		return nil, nil
	}
	faults := d.explain(into, path)
	if len(faults) == 0 { // the decoder's own text is better than none
		for _, e := range append(strict, err) {
			if e != nil {
				faults = append(faults,
					Fault{Line: d.Line, Field: join(path), Text: strings.TrimPrefix(e.Error(), "json: ")})
			}
		}
	}
	if err != nil {
		return nil, faults
	}
	return faults, nil
}

// LineOf is the line of the value at path, or of its nearest existing parent.
func (d Document) LineOf(path ...any) int {
	_, line := d.find(path)
	return line
}

// Fault is one error in a document.
type Fault struct {
	// Line in the stream, from 1.
	Line int
	// Field is a path such as spec.containers[0].image. It is empty for a fault of the syntax.
	Field string
	Text  string
}

func (f Fault) Error() string {
	if f.Field == "" {
		return fmt.Sprintf("line %d: %s", f.Line, f.Text)
	}
	return fmt.Sprintf("line %d: %s: %s", f.Line, f.Field, f.Text)
}

// Faults are all errors in a document. As an error, it is never empty.
type Faults []Fault

func (f Faults) Error() string {
	all := make([]string, len(f))
	for i := range f {
		all[i] = f[i].Error()
	}
	return strings.Join(all, "; ")
}

// join formats a path, such as items[0].spec.
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

package document

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/base/quantity"
)

const (
	// maxFaults bounds the faults of one document. A document with more was most likely meant to be something else.
	maxFaults = 10
	// maxNodes bounds the walk: aliases can make a small document very large.
	maxNodes = 1 << 20
	// maxDepth is far more than any API type needs. An alias may contain itself.
	maxDepth = 200
	// maxName is the length of the longest name that gets a suggestion, in bytes.
	maxName = 64

	notQuantity = "%s is not a quantity such as 500m, 2, 64Mi or 10Gi"
)

// mayBeCostly finds a number in JSON whose exponent has at least four digits, and a number with escaped characters.
var mayBeCostly = regexp.MustCompile(
	`[":,\s\[][-+]?[0-9.]+` + quantity.LongExponent + `["\s,}\]]|\\u00(?:3[0-9]|2[bBdDeE]|[46]5)`)

// walk compares a document's nodes with a Go type. It finds the lines and paths that a decoder does not report.
type walk struct {
	doc    Document
	faults Faults
	costly bool // one of the faults is a quantity that takes minutes to parse, see package quantity
	nodes  int
	depth  int
}

// costly returns faults if a quantity of the document would take minutes to parse. It compares only the few documents
// with a type that may have one.
func (d Document) costly(data []byte, into any, path []any) Faults {
	if !mayBeCostly.Match(data) {
		return nil
	}
	w := d.compare(into, path)
	if w.costly || len(w.faults) >= maxFaults { // the walk ends after the last one
		return w.faults
	}
	return nil
}

// explain returns the faults that keep the part of the document at path from being decoded into into's type.
func (d Document) explain(into any, path []any) Faults { return d.compare(into, path).faults }

func (d Document) compare(into any, path []any) walk {
	w := walk{doc: d}
	if node, _ := d.find(path); node != nil {
		w.value(node, reflect.TypeOf(into), join(path))
	}
	return w
}

// duplicates returns the faults for duplicate keys, for a document of any type.
func (d Document) duplicates() Faults {
	node, _ := d.find(nil)
	if node == nil {
		return nil
	}
	w := walk{doc: d}
	w.value(node, reflect.TypeFor[any](), "")
	return w.faults
}

// find returns the node at path and its line. If nothing is at path or the document cannot be parsed, the node is nil.
// The line is then where the last node on the path was found.
func (d Document) find(path []any) (*yaml.Node, int) {
	var root yaml.Node
	if err := yaml.Unmarshal(d.Text, &root); err != nil || len(root.Content) == 0 {
		return nil, d.Line
	}
	node := target(root.Content[0])
	for _, step := range path {
		var next *yaml.Node
		switch step := step.(type) {
		case int:
			if node.Kind == yaml.SequenceNode && step < len(node.Content) {
				next = node.Content[step]
			}
		case string:
			for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == step {
					next = node.Content[i+1]
				}
			}
		}
		if next == nil {
			return nil, d.Line + node.Line - 1
		}
		node = target(next)
	}
	return node, d.Line + node.Line - 1
}

// target follows an alias. The parser refuses aliases that contain themselves.
func target(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	return node
}

func (w *walk) fault(node *yaml.Node, field, format string, args ...any) {
	w.faults = append(w.faults,
		Fault{Line: w.doc.Line + node.Line - 1, Field: field, Text: fmt.Sprintf(format, args...)})
}

// value compares one node with a type.
func (w *walk) value(node *yaml.Node, t reflect.Type, path string) {
	node = target(node)
	w.nodes++
	w.depth++
	defer func() { w.depth-- }()
	if w.nodes > maxNodes || w.depth > maxDepth || len(w.faults) >= maxFaults || node.Tag == "!!null" {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		w.leaf(node, t, path)
		return
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		w.mapping(node, t, path)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			w.leaf(node, t, path)
			return
		}
		w.sequence(node, t, path)
	case reflect.Interface:
		w.untyped(node, t, path)
	default:
		w.leaf(node, t, path)
	}
}

func (w *walk) untyped(node *yaml.Node, t reflect.Type, path string) {
	switch node.Kind {
	case yaml.MappingNode:
		w.mapping(node, t, path)
	case yaml.SequenceNode:
		for i, item := range node.Content {
			w.value(item, t, at(path, i))
		}
	default: // every scalar is valid
	}
}

func (w *walk) sequence(node *yaml.Node, t reflect.Type, path string) {
	if node.Kind != yaml.SequenceNode {
		w.fault(node, path, "wants a list, got %s", got(node))
		return
	}
	for i, item := range node.Content {
		w.value(item, t.Elem(), at(path, i))
	}
}

// mapping compares the keys and values of an object with a struct, a map or an untyped value.
func (w *walk) mapping(node *yaml.Node, t reflect.Type, path string) {
	if node.Kind != yaml.MappingNode {
		w.fault(node, path, "wants an object, got %s", got(node))
		return
	}
	var known map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		known = fields(t)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Tag == "!!merge" {
			w.merged(value, t, path)
			continue
		}
		field := child(path, key.Value)
		if first, twice := seen[key.Value]; twice {
			w.fault(key, field, "is given twice, first in line %d", first)
			continue
		}
		seen[key.Value] = w.doc.Line + key.Line - 1
		switch {
		case t.Kind() == reflect.Interface:
			w.value(value, t, field)
		case t.Kind() == reflect.Map:
			w.value(value, t.Elem(), field)
		case known[key.Value] != nil:
			w.value(value, known[key.Value], field)
		default:
			w.fault(key, field, "unknown field%s", suggestion(key.Value, known))
		}
	}
}

// merged checks the values of a YAML merge key (<<): one object or a list of objects.
func (w *walk) merged(value *yaml.Node, t reflect.Type, path string) {
	value = target(value)
	if value.Kind != yaml.SequenceNode {
		w.value(value, t, path)
		return
	}
	for _, one := range value.Content {
		w.value(one, t, path)
	}
}

// leaf lets the type decode the value and describes what the type accepts.
func (w *walk) leaf(node *yaml.Node, t reflect.Type, path string) {
	if t == reflect.TypeFor[resource.Quantity]() && quantity.Check(node.Value) != nil {
		w.costly = true
		w.fault(node, path, notQuantity, got(node))
		return
	}
	text, err := yaml.Marshal(node)
	if err != nil {
		return
	}
	data, err := sigsyaml.YAMLToJSON(text)
	if err != nil {
		return
	}
	v := reflect.New(t)
	err = sigsjson.UnmarshalCaseSensitivePreserveInts(data, v.Interface())
	if err == nil {
		return
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		if t == reflect.TypeFor[resource.Quantity]() {
			w.fault(node, path, notQuantity, data)
			return
		}
		w.fault(node, path, "%s: %s", data, strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	if t.Kind() != reflect.String || node.Kind != yaml.ScalarNode {
		w.fault(node, path, "wants %s, got %s", wanted(t), got(node))
		return
	}
	read := ""
	if string(data) != node.Value {
		read = fmt.Sprintf(", which YAML reads as %s", data)
	}
	w.fault(node, path, "wants text, got %s%s: put it in quotes", shorten(node.Value), read)
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "base64 text"
	default:
		return "a whole number (" + t.Kind().String() + ")"
	}
}

func got(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	default:
		if node.Tag == "!!str" {
			return fmt.Sprintf("%q", shorten(node.Value))
		}
		return shorten(node.Value)
	}
}

// shorten keeps a message readable if a value is a whole file.
func shorten(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return s
}

// fields maps the JSON names of a struct's fields to their types, including the fields of embedded structs.
func fields(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			for inner, t := range fields(f.Type) {
				all[inner] = t
			}
		case name == "":
			all[f.Name] = f.Type
		default:
			all[name] = f.Type
		}
	}
	return all
}

// suggestion names the field that was most likely meant, if its name is similar enough.
func suggestion(name string, known map[string]reflect.Type) string {
	if len(name) > maxName {
		return ""
	}
	best, least := "", min(3, (len(name)+1)/2)
	for candidate := range known {
		d := distance(strings.ToLower(name), strings.ToLower(candidate))
		if d < least || d == least && best != "" && candidate < best {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// distance is the number of letters to insert, drop or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/model/object"
)

// Object is one object of a manifest as written, before defaults.
type Object struct {
	// Exactly one of Pod and Value is set.
	Pod   *corev1.Pod
	Value object.Value
	// Canonical is the object's content as JSON without comments and with sorted keys. Equal content gives equal text
	// in every version of this program, because the text is not decoded into a Go type.
	Canonical []byte
	// Origin is where the text was read: a path, a URL, or "-".
	Origin string
	// Document and Line are the object's position in the text, both from 1.
	Document, Line int
	// Ignored lists the unknown fields and the keys given twice in a text that was decoded leniently.
	Ignored document.Faults
}

// Warning returns the error that names the ignored fields of an object; nil if there are none.
func (o Object) Warning() *Error {
	if len(o.Ignored) == 0 {
		return nil
	}
	return &Error{Origin: o.Origin, Document: o.Document, Line: o.Ignored[0].Line, Key: o.Key(), Err: o.Ignored}
}

// Fail returns the error for an object that was decoded but is invalid.
func (o Object) Fail(err error) *Error {
	return &Error{Origin: o.Origin, Document: o.Document, Line: o.Line, Key: o.Key(),
		Err: fmt.Errorf("line %d: %w", o.Line, err)}
}

// Key returns the object's kind, namespace and name. An empty namespace is replaced by the default one.
func (o Object) Key() object.Key {
	if o.Value != nil {
		return keyOf(object.KeyOf(o.Value))
	}
	return keyOf(object.Key{Kind: kindPod, Namespace: o.Pod.Namespace, Name: o.Pod.Name})
}

// Invalid joins the errors of Validate into one, nil if there are none.
func Invalid(list field.ErrorList) error {
	if len(list) == 0 {
		return nil
	}
	all := make([]string, len(list))
	for i := range list {
		all[i] = list[i].Error()
	}
	return errors.New(strings.Join(all, "; "))
}

// Error is the problem of one document of a manifest.
type Error struct {
	Origin string
	// Document counts from 1.
	Document int
	// Line is the line of the first problem, from 1.
	Line int
	// Key names the object. Its Name is empty if the object's name is unknown.
	Key object.Key
	Err error
}

func (e *Error) Error() string {
	where := e.Origin
	if e.Document > 1 {
		where += fmt.Sprintf(" (document %d)", e.Document)
	}
	switch {
	case e.Key.Name == "":
	case e.Key.Kind == kindPod:
		where += ": pod " + e.Key.Namespace + "/" + e.Key.Name
	default:
		where += ": " + e.Key.String()
	}
	return where + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Errors holds the problems of a manifest in the order of its documents.
type Errors []*Error

func (e Errors) Error() string {
	all := make([]string, len(e))
	for i := range e {
		all[i] = e[i].Error()
	}
	return strings.Join(all, "\n")
}

// Unwrap returns all errors for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i := range e {
		all[i] = e[i]
	}
	return all
}

// Decode reads a manifest in YAML or JSON with one or more documents. Each document is a Pod, an object of another kind
// (object.Kinds), a List, or a list of one kind such as PodList. origin names the manifest in messages.
//
// An invalid document does not affect the others, and neither does an invalid item of a list. Decode returns the valid
// objects together with the error, which is of type Errors. For a text without documents both are nil.
func Decode(text []byte, origin string) ([]Object, error) { return decode(text, origin, false) }

// DecodeLenient is Decode for manifests that a kubelet may have read before: an object with unknown fields, or with a
// key that is given twice, is valid. Its Ignored lists them.
func DecodeLenient(text []byte, origin string) ([]Object, error) { return decode(text, origin, true) }

func decode(text []byte, origin string, lenient bool) ([]Object, error) {
	var objects []Object
	var errs Errors
	if len(text) > document.MaxSize {
		return nil, Errors{{Origin: origin, Document: 1, Line: 1, Err: document.ErrTooLarge}}
	}
	for _, doc := range document.Split(text) {
		r := reader{doc: doc, origin: origin, lenient: lenient}
		r.document()
		objects = append(objects, r.objects...)
		errs = append(errs, r.errs...)
	}
	if len(errs) > 0 {
		return objects, errs
	}
	return objects, nil
}

// reader collects the objects and errors of one document.
type reader struct {
	doc     document.Document
	origin  string
	lenient bool
	ignored document.Faults // in a lenient reader: the faults that no object has claimed yet
	objects []Object
	errs    Errors
}

// head holds the fields that identify the kind of an object.
type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

func (r *reader) fail(key object.Key, err error, path ...any) {
	e := &Error{Origin: r.origin, Document: r.doc.Index, Key: key, Err: err}
	if faults, ok := errors.AsType[document.Faults](err); ok {
		e.Line = faults[0].Line
	} else {
		e.Line = r.doc.LineOf(path...)
		e.Err = fmt.Errorf("line %d: %w", e.Line, err)
	}
	r.errs = append(r.errs, e)
}

func (r *reader) document() {
	data, err := r.json()
	if err != nil {
		r.fail(object.Key{}, err)
		return
	}
	h, err := r.head(data)
	if err != nil {
		r.fail(object.Key{}, err)
		return
	}
	if item, ok := listed(h); ok {
		r.list(data, h, item)
		return
	}
	r.object(data, h)
}

func (r *reader) json() (data []byte, err error) {
	if !r.lenient {
		return r.doc.JSON()
	}
	data, r.ignored, err = r.doc.LenientJSON()
	return data, err
}

// decode puts data into the value that into points to.
func (r *reader) decode(data []byte, into any, path ...any) error {
	if !r.lenient {
		return r.doc.Decode(data, into, path...)
	}
	ignored, err := r.doc.DecodeLenient(data, into, path...)
	for _, f := range ignored {
		if !slices.Contains(r.ignored, f) {
			r.ignored = append(r.ignored, f)
		}
	}
	return err
}

// claim returns the ignored fields of the object at path. The first object of a list also gets the ignored fields of
// the list itself.
func (r *reader) claim(path []any) (mine document.Faults) {
	prefix := ""
	if len(path) > 0 {
		prefix = fmt.Sprintf("%s[%d].", path...)
	}
	r.ignored = slices.DeleteFunc(r.ignored, func(f document.Fault) bool {
		of := strings.HasPrefix(f.Field, prefix) || !strings.HasPrefix(f.Field, "items[")
		if of {
			mine = append(mine, f)
		}
		return of
	})
	return mine
}

// head reads the fields that identify the kind. The rest is checked once the kind is known.
func (r *reader) head(data []byte, path ...any) (head, error) {
	var h head
	if json.Unmarshal(data, &h) == nil {
		return h, nil
	}
	var shape struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   any    `json:"metadata"`
		Spec       any    `json:"spec"`
		Status     any    `json:"status"`
		Items      []any  `json:"items"`
	}
	return head{}, r.doc.Decode(data, &shape, path...)
}

// list reads the items of a list. Items of a list of one kind may omit their own kind.
func (r *reader) list(data []byte, h head, item kind) {
	var strict struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := r.decode(data, &strict); err != nil {
		r.fail(object.Key{}, err)
		return
	}
	for i, text := range h.Items {
		inner, err := r.head(text, "items", i)
		if err != nil {
			r.fail(object.Key{}, err, "items", i)
			continue
		}
		if inner.APIVersion == "" && inner.Kind == "" {
			inner.APIVersion, inner.Kind = item.version, item.name
		}
		r.object(text, inner, "items", i)
	}
}

// object reads the object at path in the document. An empty path means the whole document.
func (r *reader) object(data []byte, h head, path ...any) {
	if err := checkKind(h); err != nil {
		r.fail(object.Key{}, err, append(path, "kind")...)
		return
	}
	o := Object{Origin: r.origin, Document: r.doc.Index}
	key := keyIn(h)
	var err error
	if h.Kind == kindPod {
		o.Pod = &corev1.Pod{}
		err = r.decode(data, o.Pod, path...)
		o.Pod.APIVersion, o.Pod.Kind = "v1", kindPod
	} else {
		k, _ := object.KindNamed(h.Kind)
		o.Value = k.New()
		err = r.decode(data, o.Value, path...)
	}
	if err == nil {
		o.Canonical, err = canonicalize(data)
	}
	if err != nil {
		r.fail(key, err, path...)
		return
	}
	o.Line, o.Ignored = r.line(path), r.claim(path)
	r.objects = append(r.objects, o)
}

// line returns the line of the object at path. It avoids parsing the document again for the common case of a single
// pod.
func (r *reader) line(path []any) int {
	if len(path) > 0 {
		return r.doc.LineOf(path...)
	}
	skipped := len(r.doc.Text) - len(bytes.TrimLeft(r.doc.Text, " \t\r\n"))
	return r.doc.Line + bytes.Count(r.doc.Text[:skipped], []byte("\n"))
}

const kindPod = "Pod"

// kind is a kind that manifests may contain.
type kind struct{ name, version string }

func kinds() []kind {
	all := []kind{{kindPod, "v1"}}
	for _, k := range object.Kinds() {
		all = append(all, kind{k.Name, k.APIVersion})
	}
	return all
}

// listed reports whether a head is a list's, and the kind of its items. The kind is empty for a List.
func listed(h head) (item kind, ok bool) {
	if h.APIVersion == "v1" && h.Kind == "List" {
		return kind{}, true
	}
	for _, k := range kinds() {
		if h.Kind == k.name+"List" && h.APIVersion == k.version {
			return k, true
		}
	}
	return kind{}, false
}

func checkKind(h head) error {
	names := make([]string, 0, len(kinds()))
	var version string
	for _, k := range kinds() {
		names = append(names, k.name)
		if h.Kind == k.name || h.Kind == k.name+"List" || h.Kind == "List" {
			version = cmp.Or(version, k.version)
		}
	}
	supported := "supported kinds: " + strings.Join(append(names, "List"), ", ")
	switch {
	case h.APIVersion == "" && h.Kind == "":
		return errors.New("apiVersion and kind are missing, a pod has apiVersion: v1 and kind: Pod")
	case h.Kind == "":
		return errors.New("kind is missing, " + supported)
	case version == "":
		return fmt.Errorf("kind %s: %s", h.Kind, supported)
	case h.APIVersion == "":
		return fmt.Errorf("apiVersion is missing, kind %s wants %s", h.Kind, version)
	case h.APIVersion != version:
		return fmt.Errorf("apiVersion %s: only %s is supported for kind %s", h.APIVersion, version, h.Kind)
	case slices.Contains(names, h.Kind):
		return nil
	}
	return fmt.Errorf("kind %s: a list within a list is not supported", h.Kind)
}

// keyIn returns the name as written, for messages about an object that cannot be decoded.
func keyIn(h head) object.Key {
	var m struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	if json.Unmarshal(h.Metadata, &m) != nil {
		return object.Key{}
	}
	return keyOf(object.Key{Kind: h.Kind, Namespace: m.Namespace, Name: m.Name})
}

// keyOf returns the key with the default namespace if it needs one.
func keyOf(key object.Key) object.Key {
	if k, ok := object.KindNamed(key.Kind); key.Name != "" && key.Namespace == "" && (!ok || k.Namespaced) {
		key.Namespace = corev1.NamespaceDefault
	}
	return key
}

// canonicalize sorts the keys and removes white space. Numbers keep their digits.
func canonicalize(data []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	delete(v, "status") // the status is not part of what is wanted
	return json.Marshal(v)
}

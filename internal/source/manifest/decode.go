package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-run/berth/internal/document"
)

// Object is one pod of a manifest as somebody wrote it, before defaults.
type Object struct {
	Pod *corev1.Pod
	// Canonical is the pod's text with the noise taken out: comments, order of
	// keys, YAML or JSON. Two texts with the same meaning have the same one, in
	// every version of this program, because it does not pass through a Go type.
	Canonical []byte
	// Origin is where the text was read: a path, a URL, "-".
	Origin string
	// Document and Line are where the pod begins in it, both from 1.
	Document, Line int
}

// Fail says what is wrong with an object that was decoded, but cannot be used.
func (o Object) Fail(err error) *Error {
	return &Error{Origin: o.Origin, Document: o.Document, Line: o.Line, Pod: nameOf(o.Pod.Name, o.Pod.Namespace), Err: fmt.Errorf("line %d: %w", o.Line, err)}
}

// Invalid is what Validate found, as one error; nil for nothing.
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

// Error is what is wrong with one document of a manifest.
type Error struct {
	Origin string
	// Document counts from 1.
	Document int
	// Line is where the first fault is, from 1.
	Line int
	// Pod is its namespace/name as far as it can be told; may be empty.
	Pod string
	Err error
}

func (e *Error) Error() string {
	where := e.Origin
	if e.Document > 1 {
		where += fmt.Sprintf(" (document %d)", e.Document)
	}
	if e.Pod != "" {
		where += ": pod " + e.Pod
	}
	return where + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Errors is what is wrong with a manifest, in the order of its documents.
type Errors []*Error

func (e Errors) Error() string {
	all := make([]string, len(e))
	for i := range e {
		all[i] = e[i].Error()
	}
	return strings.Join(all, "\n")
}

// Unwrap gives every error to errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i := range e {
		all[i] = e[i]
	}
	return all
}

// Decode reads a manifest: YAML or JSON, one or several documents, each a Pod
// or a List (or PodList) of pods. origin names it in messages.
//
// A document that cannot be used does not touch the others, nor does an item of
// a list: the objects that could be read are returned together with the error,
// which is Errors. A text without any document gives neither.
func Decode(text []byte, origin string) ([]Object, error) {
	var objects []Object
	var errs Errors
	if len(text) > document.MaxSize {
		return nil, Errors{{Origin: origin, Document: 1, Line: 1, Err: document.ErrTooLarge}}
	}
	for _, doc := range document.Split(text) {
		r := reader{doc: doc, origin: origin}
		r.document()
		objects = append(objects, r.objects...)
		errs = append(errs, r.errs...)
	}
	if len(errs) > 0 {
		return objects, errs
	}
	return objects, nil
}

// reader collects what one document gives.
type reader struct {
	doc     document.Document
	origin  string
	objects []Object
	errs    Errors
}

// head is what tells one kind of object from another.
type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

func (r *reader) fail(pod string, err error, path ...any) {
	e := &Error{Origin: r.origin, Document: r.doc.Index, Pod: pod, Err: err}
	if faults, ok := errors.AsType[document.Faults](err); ok {
		e.Line = faults[0].Line
	} else {
		e.Line = r.doc.LineOf(path...)
		e.Err = fmt.Errorf("line %d: %w", e.Line, err)
	}
	r.errs = append(r.errs, e)
}

func (r *reader) document() {
	data, err := r.doc.JSON()
	if err != nil {
		r.fail("", err)
		return
	}
	h, err := r.head(data)
	if err != nil {
		r.fail("", err)
		return
	}
	if h.APIVersion == "v1" && (h.Kind == "List" || h.Kind == "PodList") {
		r.list(data, h)
		return
	}
	r.pod(data, h)
}

// head reads what is needed to know the kind; the rest is judged once it is known.
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

// list reads the items of a List or PodList one by one. An item of a PodList may leave out its kind.
func (r *reader) list(data []byte, h head) {
	var strict struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := r.doc.Decode(data, &strict); err != nil {
		r.fail("", err)
		return
	}
	for i, item := range h.Items {
		inner, err := r.head(item, "items", i)
		if err != nil {
			r.fail("", err, "items", i)
			continue
		}
		if h.Kind == "PodList" && inner.APIVersion == "" && inner.Kind == "" {
			inner.APIVersion, inner.Kind = "v1", "Pod"
		}
		r.pod(item, inner, "items", i)
	}
}

// pod reads one pod, which is the document or the part of it at path.
func (r *reader) pod(data []byte, h head, path ...any) {
	name := nameIn(h.Metadata)
	if err := checkKind(h); err != nil {
		r.fail("", err, append(path, "kind")...)
		return
	}
	pod := &corev1.Pod{}
	if err := r.doc.Decode(data, pod, path...); err != nil {
		r.fail(name, err, path...)
		return
	}
	canonical, err := canonicalize(data)
	if err != nil {
		r.fail(name, err, path...)
		return
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	r.objects = append(r.objects, Object{Pod: pod, Canonical: canonical, Origin: r.origin, Document: r.doc.Index, Line: r.line(path)})
}

// line avoids parsing the document again for the common case of one pod.
func (r *reader) line(path []any) int {
	if len(path) > 0 {
		return r.doc.LineOf(path...)
	}
	skipped := len(r.doc.Text) - len(bytes.TrimLeft(r.doc.Text, " \t\r\n"))
	return r.doc.Line + bytes.Count(r.doc.Text[:skipped], []byte("\n"))
}

func checkKind(h head) error {
	switch {
	case h.APIVersion == "v1" && h.Kind == "Pod":
		return nil
	case h.APIVersion == "" && h.Kind == "":
		return errors.New("apiVersion and kind are missing, a pod has apiVersion: v1 and kind: Pod")
	case h.Kind == "":
		return errors.New("kind is missing, only Pod and List manifests are taken")
	case h.APIVersion == "":
		return fmt.Errorf("apiVersion is missing, kind %s wants v1", h.Kind)
	case h.Kind == "Pod" || h.Kind == "List" || h.Kind == "PodList":
		return fmt.Errorf("apiVersion %s: only v1 is taken for kind %s", h.APIVersion, h.Kind)
	default:
		return fmt.Errorf("kind %s: only Pod and List manifests are taken", h.Kind)
	}
}

// nameIn is namespace/name as written, for messages about a pod that cannot be decoded.
func nameIn(metadata json.RawMessage) string {
	var m struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	if json.Unmarshal(metadata, &m) != nil {
		return ""
	}
	return nameOf(m.Name, m.Namespace)
}

func nameOf(name, namespace string) string {
	if name == "" {
		return ""
	}
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	return namespace + "/" + name
}

// canonicalize sorts the keys and drops the space. Numbers keep their digits.
func canonicalize(data []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	delete(v, "status") // no part of what is wanted
	return json.Marshal(v)
}

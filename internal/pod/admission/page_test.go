package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/base/golden"
)

const pageFile = "../../../docs/pod-fields.md"

const pageHead = `# Pod fields

Every field of a pod's spec and of all that is below it, and what becomes of it. A pod that sets
a refused field is rejected with the reason ` + "`UnsupportedField`" + `, and the message names the field:
without the field it would be broken in silence.

| status | |
|---|---|
| works | it has the effect that Kubernetes gives it |
| standalone | it works without a control plane too, where a kubelet refuses the pod: what it names is read from ` +
	`manifests on this machine |
| ignored | it has no meaning on Linux and is ignored, as by a kubelet |
| joined | it needs a control plane: a standalone agent refuses it |
| newer | a node of a cluster runs a pod without it, as a kubelet does; a pod of a manifest is rejected |
| refused | the pod is rejected, for the reason given |

This page is written by a test from the API's types and the table in internal/pod/admission/fields.go:
` + "`go test ./internal/pod/admission -run TestPage -update`" + `.
`

// TestPage keeps docs/pod-fields.md true.
func TestPage(t *testing.T) {
	golden.File(t, pageFile, page())
}

// chapter is the part of the page about one type.
type chapter struct {
	name string
	rows []string
}

// book collects one chapter for each type, in the order of the walk.
type book struct {
	table    map[string]Field
	chapters []*chapter
	begun    map[string]bool
}

func page() string {
	b := &book{table: map[string]Field{}, begun: map[string]bool{}}
	for _, f := range Fields() {
		b.table[f.Path] = f
	}
	b.write(reflect.TypeFor[corev1.PodSpec]())
	var text strings.Builder
	text.WriteString(pageHead)
	for _, c := range b.chapters {
		fmt.Fprintf(&text, "\n## %s\n\n| field | status | |\n|---|---|---|\n%s", c.name, strings.Join(c.rows, ""))
	}
	return text.String()
}

// write adds the chapter of a type, and then the chapters of the types below it.
func (b *book) write(typ reflect.Type) {
	if b.begun[typ.Name()] {
		return
	}
	b.begun[typ.Name()] = true
	c := &chapter{name: typ.Name()}
	b.chapters = append(b.chapters, c)
	for _, below := range b.rows(c, typ, typ.Name()) {
		b.write(below)
	}
}

// rows adds the fields of a type, and returns the types below them that work.
func (b *book) rows(c *chapter, typ reflect.Type, name string) []reflect.Type {
	var below []reflect.Type
	for i := range typ.NumField() {
		field := typ.Field(i)
		json := jsonName(field)
		if json == "" {
			below = append(below, b.rows(c, field.Type, embeddedName(name, field.Name))...)
			continue
		}
		f, ok := b.table[name+"."+json]
		if !ok { // below one that works as a whole
			f = Field{Status: Whole}
		}
		c.rows = append(c.rows, row(json, f))
		deeper := field.Type
		for deeper.Kind() == reflect.Slice || deeper.Kind() == reflect.Pointer {
			deeper = deeper.Elem()
		}
		looked := f.Status != Scheduled && f.Status != Ignored && (f.Status < Joined || f.when != nil)
		if looked && deeper.Kind() == reflect.Struct && isAPI(deeper) {
			below = append(below, deeper)
		}
	}
	return below
}

func row(name string, f Field) string {
	status, why := f.Status.String(), f.Why
	switch {
	case f.Status == Scheduled:
		status, why = Works.String(), "for the scheduler or another controller: the node has nothing to do with it"
	case f.Status >= Newer && f.when != nil:
		status, why = Works.String(), "not for some values: "+why
	}
	return fmt.Sprintf("| %s | %s | %s |\n", name, status, why)
}

// TestPodsHaveEveryField says that what the page says to work is shown: some pod
// of the golden files has it.
func TestPodsHaveEveryField(t *testing.T) {
	files, err := filepath.Glob("../steps/container/render/testdata/pods/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pods, %v", len(files), err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p := &corev1.Pod{}
		if err := yaml.UnmarshalStrict(text, p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		visit(reflect.ValueOf(&p.Spec).Elem(), "PodSpec", seen)
	}
	var missing []string
	for _, f := range Fields() {
		// A field newer than the API version that is followed has no effect in the golden files.
		unset := f.Path == "EmptyDirVolumeSource.mode"
		if works := f.Status < Joined && f.Status != Ignored ||
			f.Status >= Newer && f.when != nil && seen[f.Path]; works && !seen[f.Path] &&
			!unset {
			missing = append(missing, f.Path)
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf(
			"no pod in internal/pod/steps/container/render/testdata/pods sets\n\t%s\nadd them to one, run go test "+
				"./internal/pod/steps/container/render -update and read what it wrote", strings.Join(missing, "\n\t"))
	}
}

// visit notes the fields that are set, by type and name.
func visit(v reflect.Value, name string, seen map[string]bool) {
	for i := range v.NumField() {
		value, field := v.Field(i), v.Type().Field(i)
		if isUnset(value) {
			continue
		}
		json := jsonName(field)
		if json == "" {
			visit(value, embeddedName(name, field.Name), seen)
			continue
		}
		seen[name+"."+json] = true
		each(value, func(s reflect.Value) { visit(s, s.Type().Name(), seen) })
	}
}

// each calls f for the structs of the API in a field.
func each(v reflect.Value, f func(reflect.Value)) {
	switch k := v.Kind(); {
	case k == reflect.Pointer:
		each(v.Elem(), f)
	case k == reflect.Slice:
		for i := range v.Len() {
			each(v.Index(i), f)
		}
	case k == reflect.Struct && isAPI(v.Type()):
		f(v)
	}
}

package kubeletfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
	sigsjson "sigs.k8s.io/json"

	"github.com/berth-run/berth/internal/base/document"
)

const configKind = "KubeletConfiguration"

// Layer is one configuration file.
type Layer struct {
	Name   string
	data   map[string]any
	config *v1beta1.KubeletConfiguration // data decoded; nil for a layer that is not a file
	// Ignored names the unknown fields of the file, and the keys given twice. Their last value counts.
	Ignored []Warning
}

// The fields of a file that are Berth's own.
const (
	runtimes         = "runtimes"
	missingManifests = "missingManifests"
)

// Runtimes returns the value of the field runtimes, as decoded from JSON, or nil.
func (l Layer) Runtimes() any { return l.data[runtimes] }

// MissingManifests returns the field missingManifests of the last file that sets it, as decoded from JSON, and the
// name of that file. The value is nil if no file sets the field, or if the last one sets it to null.
func MissingManifests(layers []Layer) (value any, file string) {
	for _, l := range layers {
		if v, ok := l.data[missingManifests]; ok {
			value, file = v, l.Name
		}
	}
	return value, file
}

// Parse reads one file. It ignores unknown fields, as the kubelet does. A value that cannot be read is an error.
func Parse(name string, text []byte) (Layer, error) {
	docs := document.Split(text)
	if len(docs) != 1 {
		return Layer{}, fmt.Errorf("%s: wants one document of kind %s, has %d", name, configKind, len(docs))
	}
	data, twice, err := docs[0].LenientJSON()
	if err != nil {
		return Layer{}, fmt.Errorf("%s: %w", name, err)
	}
	var kc v1beta1.KubeletConfiguration
	unknown, err := docs[0].DecodeLenient(data, &kc)
	if err != nil {
		return Layer{}, fmt.Errorf("%s: %w", name, err)
	}
	if kc.APIVersion != v1beta1.SchemeGroupVersion.String() || kc.Kind != configKind {
		return Layer{},
			fmt.Errorf("%s: wants apiVersion %s and kind %s, has %q and %q", name, v1beta1.SchemeGroupVersion,
				configKind, kc.APIVersion, kc.Kind)
	}
	l := Layer{Name: name, config: &kc}
	for _, f := range append(twice, unknown...) {
		if f.Field == runtimes || f.Field == missingManifests {
			continue
		}
		w := Warning{Origin: name, Text: "ignored, as by a kubelet: " + f.Error()}
		if !slices.Contains(l.Ignored, w) {
			l.Ignored = append(l.Ignored, w)
		}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&l.data); err != nil {
		return Layer{}, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// Merge merges each file into the files before it (JSON merge patch, RFC 7396). It also returns, for each field
// that is set, the file that set it last. A layer that is not a file never counts as such a file.
func Merge(layers []Layer) (*v1beta1.KubeletConfiguration, map[string]string, error) {
	merged := map[string]any{}
	origin := map[string]string{}
	for _, l := range layers {
		patch(merged, l.data)
		if l.config == nil {
			continue
		}
		for _, path := range setFields(l.config) {
			origin[path] = l.Name
		}
	}
	kc, err := decode(merged)
	if err != nil {
		return nil, nil, fmt.Errorf("merge configuration files: %w", err)
	}
	set := map[string]bool{}
	for _, path := range setFields(kc) {
		set[path] = true
	}
	maps.DeleteFunc(origin, func(path, _ string) bool { return !set[path] })
	return kc, origin, nil
}

// patch merges values into an object. null removes a key.
func patch(object, values map[string]any) {
	for key, value := range values {
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			inner, ok := object[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			patch(inner, value)
			object[key] = inner
		default:
			object[key] = value
		}
	}
}

func decode(data map[string]any) (*v1beta1.KubeletConfiguration, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	kc := &v1beta1.KubeletConfiguration{}
	return kc, sigsjson.UnmarshalCaseSensitivePreserveInts(text, kc) // a field in another case is unknown
}

// setFields returns the paths of the fields that are not at their zero value, which in this API means "not set".
func setFields(kc *v1beta1.KubeletConfiguration) []string {
	var set []string
	eachField(reflect.ValueOf(kc).Elem(), "", func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Map, reflect.Slice:
			if v.Len() > 0 {
				set = append(set, path)
			}
		default:
			if !v.IsZero() {
				set = append(set, path)
			}
		}
	})
	return set
}

// eachField visits the fields of a configuration that hold values, and descends into groups of fields. It visits the
// fields of a nil group as if the group were empty.
func eachField(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := v.Field(i)
		if field.Kind() == reflect.Pointer && field.Type().Elem().Kind() == reflect.Struct &&
			isGroup(field.Type().Elem()) {
			if field.IsNil() {
				field = reflect.New(field.Type().Elem())
			}
			field = field.Elem()
		}
		switch {
		case f.Anonymous && name == "":
			if f.Name != "TypeMeta" {
				eachField(field, path, visit)
			}
		case isGroup(field.Type()):
			eachField(field, join(path, name), visit)
		default:
			visit(join(path, name), field)
		}
	}
}

// isGroup reports whether a type is a group of fields and not a value.
func isGroup(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

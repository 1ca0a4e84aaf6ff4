package document

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestSplit(t *testing.T) {
	type doc struct {
		Index, Line int
		Text        string
	}
	tests := []struct {
		name, stream string
		want         []doc
	}{
		{"nothing", "", nil},
		{"comments only", "# a\n\n---\n# b\n...\n", nil},
		{"one", "a: 1\n", []doc{{1, 1, "a: 1\n"}}},
		{"byte order mark", "\ufeffa: 1\n", []doc{{1, 1, "a: 1\n"}}},
		{"leading marker", "---\na: 1\n", []doc{{1, 1, "\na: 1\n"}}},
		{"directive", "%YAML 1.1\n---\na: 1\n", []doc{{1, 2, "\na: 1\n"}}},
		{"two, one empty between", "a: 1\n---\n\n---\nb: 2\n", []doc{{1, 1, "a: 1\n"}, {2, 4, "\nb: 2\n"}}},
		{"carriage returns", "a: 1\r\n---\r\nb: 2\r\n", []doc{{1, 1, "a: 1\r\n"}, {2, 2, "\r\nb: 2\r\n"}}},
		{"text behind the marker", "--- {a: 1}\n--- # b\nb: 2", []doc{{1, 1, " {a: 1}\n"}, {2, 2, " # b\nb: 2"}}},
		{"end marker", "a: 1\n...\nb: 2\n", []doc{{1, 1, "a: 1\n"}, {2, 2, "\nb: 2\n"}}},
		{"not a marker", "a: |\n  ---\n  x\nb: ---x\n----\n", []doc{{1, 1, "a: |\n  ---\n  x\nb: ---x\n----\n"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []doc
			for _, d := range Split([]byte(tt.stream)) {
				got = append(got, doc{d.Index, d.Line, string(d.Text)})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A fault of the second document has its line in the whole stream.
func TestFaults(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"fine", "kind: Pod\nspec: {hostNetwork: yes, priority: 3}", nil},
		{"fine JSON", "{\"kind\": \"Pod\",\n\t\"spec\": {\"hostNetwork\": true}}", nil},
		{"merge key", "metadata: {labels: &l {a: b}, annotations: {<<: *l, c: d}}", nil},
		{"unknown field, typing error", "spec:\n  containers:\n  - name: a\n    imgae: b",
			[]string{`line 5: spec.containers[0].imgae: unknown field, did you mean "image"?`}},
		{"unknown field, case", "spec:\n  HostNetwork: true",
			[]string{`line 3: spec.HostNetwork: unknown field, did you mean "hostNetwork"?`}},
		{"unknown field, nothing like it", "spec:\n  frobnicate: true",
			[]string{`line 3: spec.frobnicate: unknown field`}},
		{"wrong types",
			"metadata:\n  labels: [a]\nspec:\n  priority: high\n  hostNetwork: 1\n  containers:\n  - ports: 80\n    " +
				"args: {a: b}\n  - tty: 'yes'", []string{
				"line 3: metadata.labels: wants an object, got a list",
				`line 5: spec.priority: wants a whole number (int32), got "high"`,
				"line 6: spec.hostNetwork: wants true or false, got 1",
				"line 8: spec.containers[0].ports: wants a list, got 80",
				"line 9: spec.containers[0].args: wants a list, got an object",
				`line 10: spec.containers[1].tty: wants true or false, got "yes"`,
			}},
		{"number out of range", "spec: {priority: 3000000000}",
			[]string{"line 2: spec.priority: wants a whole number (int32), got 3000000000"}},
		{"unquoted text", "metadata:\n  labels:\n    version: 1.10\n    on: yes\n    port: 80", []string{
			"line 4: metadata.labels.version: wants text, got 1.10, which YAML reads as 1.1: put it in quotes",
			"line 5: metadata.labels.on: wants text, got yes, which YAML reads as true: put it in quotes",
			"line 6: metadata.labels.port: wants text, got 80: put it in quotes",
		}},
		{"quantity", "spec:\n  containers:\n  - resources:\n      limits: {memory: 1Gb}",
			[]string{
				`line 5: spec.containers[0].resources.limits.memory: "1Gb" ` +
					`is not a quantity such as 500m, 2, 64Mi or 10Gi`}},
		{"quantities that take minutes to parse",
			"spec:\n  overhead: {cpu: '1e-9999999', memory: \"1\\u0065+09999999\"}", []string{
				`line 3: spec.overhead.cpu: "1e-9999999" is not a quantity such as 500m, 2, 64Mi or 10Gi`,
				`line 3: spec.overhead.memory: "1e+09999999" is not a quantity such as 500m, 2, 64Mi or 10Gi`,
			}},
		{"such a number in JSON", `{"kind": "Pod", "spec": {"overhead": {"cpu": 1e-9999999}}}`,
			[]string{`line 2: spec.overhead.cpu: 1e-9999999 is not a quantity such as 500m, 2, 64Mi or 10Gi`}},
		{"time", "metadata: {creationTimestamp: soon}",
			[]string{
				`line 2: metadata.creationTimestamp: "soon": parsing time "soon" as ` +
					`"2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"`}},
		{"given twice", "spec:\n  nodeName: a\n  priority: 1\n  nodeName: b",
			[]string{"line 5: spec.nodeName: is given twice, first in line 3"}},
		{"given twice in JSON", "{\"kind\": \"Pod\",\n \"spec\": {\"nodeName\": \"a\",\n \"nodeName\": \"b\"}}",
			[]string{"line 4: spec.nodeName: is given twice, first in line 3"}},
		{"indentation", "spec:\n  nodeName: a\n priority: 1", []string{"line 3: did not find expected key"}},
		{"tab", "spec:\n\tnodeName: a", []string{"line 3: found character that cannot start any token"}},
		{"cut off JSON", "{\"kind\": \"Pod\",\n\"spec\": {\n", []string{"line 3: unexpected end of JSON input"}},
		{"wrong JSON", "{\"kind\": \"Pod\",\n\"spec\": {,}}",
			[]string{"line 3: invalid character ',' looking for beginning of object key string"}},
		{"a word", "hello", []string{`line 2: wants an object, got "hello"`}},
		{"a list", "- a", []string{"line 2: wants an object, got a list"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := decode(tt.text)
			var got []string
			if faults, ok := errors.AsType[Faults](err); ok {
				for _, f := range faults {
					got = append(got, f.Error())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// decode decodes text, which begins in line 2, into a pod.
func decode(text string) error {
	doc := Split([]byte("---\n" + text))[0]
	data, err := doc.JSON()
	if err != nil {
		return err
	}
	return doc.Decode(data, &corev1.Pod{})
}

func TestPartOfADocument(t *testing.T) {
	doc := Split([]byte("kind: List\nitems:\n- kind: Pod\n- kind: Pod\n  spec: {a: 1}\n"))[0]
	if got := doc.LineOf("items", 1); got != 4 {
		t.Errorf("line of the second item: %d, want 4", got)
	}
	if got := doc.LineOf("items", 7, "spec"); got != 3 {
		t.Errorf("line of a missing item: %d, want the line of the list, 3", got)
	}
	err := doc.Decode([]byte(`{"kind":"Pod","spec":{"a":1}}`), &corev1.Pod{}, "items", 1)
	if want := "line 5: items[1].spec.a: unknown field"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Aliases can make a small document large or endless.
func TestAliases(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		ref := "*a" + string(rune('0'+i))
		bomb += "a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" +
			strings.TrimSuffix(strings.Repeat(ref+", ", 10), ", ") + "]\n"
	}
	for name, text := range map[string]string{"bomb": bomb, "within itself": "a: &a {b: *a}"} {
		if err := decode(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReadAll(t *testing.T) {
	for size, want := range map[int]error{0: nil, MaxSize: nil, MaxSize + 1: ErrTooLarge, 2 * MaxSize: ErrTooLarge} {
		in := strings.NewReader(strings.Repeat("x", size))
		data, err := ReadAll(in)
		if !errors.Is(err, want) || err == nil && len(data) != size {
			t.Errorf("%d bytes: read %d, error %v, want %v", size, len(data), err, want)
		}
		if read := size - in.Len(); read > MaxSize+1 {
			t.Errorf("%d bytes: %d were read", size, read)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"kind: Pod\nspec: {containers: [{name: a, imgae: b}]}", "a: &a {b: *a}", "{\"a\":",
		"<<: [{}, {a: 1}]\n---\n? [a]\n: b", "a: !!binary x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		lines := 1 + strings.Count(string(stream), "\n")
		for i, doc := range Split(stream) {
			if doc.Index != i+1 || doc.Line < 1 || doc.Line > lines {
				t.Errorf("document %d: index %d, line %d of %d", i, doc.Index, doc.Line, lines)
			}
			data, err := doc.JSON()
			if err == nil {
				err = doc.Decode(data, &corev1.Pod{})
			}
			if err == nil {
				continue
			}
			faults, ok := errors.AsType[Faults](err)
			if !ok || len(faults) == 0 {
				t.Errorf("error without faults: %v", err)
			}
		}
	})
}

package manifest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/model/object"
)

func TestDecode(t *testing.T) {
	type object struct {
		Name string
		Line int
	}
	tests := []struct {
		name, text string
		want       []object
		errs       []string
	}{
		{name: "nothing", text: "# no pod here\n---\n"},
		{
			name: "one pod",
			text: "# a comment\n\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\n",
			want: []object{{"web", 1}},
		},
		{
			name: "JSON",
			text: `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}`,
			want: []object{{"web", 1}},
		},
		{
			name: "documents",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: " +
				"a}\n---\n---\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"b\"}}\n",
			want: []object{{"a", 1}, {"b", 6}},
		},
		{
			name: "List",
			text: "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- apiVersion: v1\n  kind: " +
				"Pod\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: b}\n",
			want: []object{{"a", 5}, {"b", 8}},
		},
		{
			name: "PodList, kinds left out",
			text: "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- {apiVersion: v1, kind: Pod, " +
				"metadata: {name: b}}\n",
			want: []object{{"a", 4}, {"b", 5}},
		},
		{
			name: "a broken document between good ones",
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: [\n---\napiVersion: v1\nkind: " +
				"Pod\nmetadata: {name: c}\n",
			want: []object{{"a", 1}, {"c", 7}},
			errs: []string{"f.yaml (document 2): line 5: did not find expected node content"},
		},
		{
			name: "a broken item between good ones",
			text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n- " +
				"apiVersion: v1\n  kind: Pod\n  metadata: {name: b, namespace: x}\n  spec: {contaners: []}\n- 7\n",
			want: []object{{"a", 4}},
			errs: []string{
				`f.yaml: pod x/b: line 10: items[1].spec.contaners: unknown field, did you mean "containers"?`,
				"f.yaml: line 11: items[2]: wants an object, got 7",
			},
		},
		{
			name: "several faults in one pod",
			text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  nodeName: a\n  hostNetwork: 'no'\n  " +
				"nodeName: b\n",
			errs: []string{"f.yaml: line 8: spec.nodeName: is given twice, first in line 6"},
		},
		{
			name: "wrong types",
			text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  hostNetwork: 'no'\n  priority: high\n",
			errs: []string{
				`f.yaml: pod default/web: line 6: spec.hostNetwork: wants true or false, got "no"; line 7: ` +
					`spec.priority: wants a whole number (int32), got "high"`},
		},
		{name: "other kind", text: "apiVersion: v1\nkind: Service\n",
			errs: []string{
				"f.yaml: line 2: kind Service: supported kinds: Pod, ConfigMap, Secret, " +
					"PersistentVolumeClaim, PersistentVolume, RuntimeClass, List"}},
		{name: "other kind in a list",
			text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n",
			errs: []string{
				"f.yaml: line 5: kind Deployment: supported kinds: Pod, ConfigMap, Secret, " +
					"PersistentVolumeClaim, PersistentVolume, RuntimeClass, List"}},
		{name: "other version", text: "apiVersion: v2\nkind: Pod\n",
			errs: []string{"f.yaml: line 2: apiVersion v2: only v1 is supported for kind Pod"}},
		{name: "no kind", text: "apiVersion: v1\n",
			errs: []string{
				"f.yaml: line 1: kind is missing, supported kinds: Pod, ConfigMap, Secret, " +
					"PersistentVolumeClaim, PersistentVolume, RuntimeClass, List"}},
		{name: "no apiVersion", text: "kind: Pod\n",
			errs: []string{"f.yaml: line 1: apiVersion is missing, kind Pod wants v1"}},
		{name: "neither", text: "a: b\n",
			errs: []string{"f.yaml: line 1: apiVersion and kind are missing, a pod has apiVersion: v1 and kind: Pod"}},
		{name: "kind is no text", text: "apiVersion: v1\nkind: [Pod]\n",
			errs: []string{"f.yaml: line 2: kind: wants text, got a list"}},
		{name: "a list with more in it", text: "apiVersion: v1\nkind: List\nitems: []\nspec: {}\n",
			errs: []string{"f.yaml: line 4: spec: unknown field"}},
		{name: "items is no list", text: "apiVersion: v1\nkind: List\nitems: 3\n",
			errs: []string{"f.yaml: line 3: items: wants a list, got 3"}},
		{name: "binary", text: "\x00\x01\x02", errs: []string{"f.yaml: line 1: control characters are not allowed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects, err := Decode([]byte(tt.text), "f.yaml")
			var got []object
			for _, o := range objects {
				got = append(got, object{o.Key().Name, o.Line})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.errs, messages(err)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func messages(err error) []string {
	var all []string
	if errs, ok := errors.AsType[Errors](err); ok {
		for _, e := range errs {
			all = append(all, e.Error())
		}
	} else if err != nil {
		all = []string{err.Error()}
	}
	return all
}

func TestOversized(t *testing.T) {
	_, err := Decode(make([]byte, document.MaxSize+1), "f.yaml")
	if want := "f.yaml: is larger than 10 MiB"; !errors.Is(err, document.ErrTooLarge) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Equal pods have equal text, and different pods do not.
func TestCanonical(t *testing.T) {
	const base = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {a: '1', b: '2'}}\nspec: {priority: 7}\n"
	tests := []struct {
		name, text string
		same       bool
	}{
		{"itself", base, true},
		{"order, comments, quotes",
			"kind: Pod # a pod\napiVersion: 'v1'\nspec:\n  priority: 7\nmetadata:\n  labels: {b: \"2\", a: \"1\"}\n  " +
				"name: web\n", true},
		{
			"JSON", `{"spec":{"priority":7},"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"b":"2","a":"1"},` +
				`"name":"web"}}`, true},
		{"status", base + "status: {phase: Running}\n", true},
		{"another value", strings.Replace(base, "7", "8", 1), false},
		{"a default spelled out", strings.Replace(base, "priority", "dnsPolicy: ClusterFirst, priority", 1), false},
	}
	want := canonical(t, base)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := canonical(t, tt.text); (got == want) != tt.same {
				t.Errorf("got %s, base is %s", got, want)
			}
		})
	}
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	objects, err := Decode([]byte(text), "f.yaml")
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	return string(objects[0].Canonical)
}

// Every object that is decoded without an error can be completed and validated. Setting defaults twice has the same
// result as once.
func FuzzDecode(f *testing.F) {
	f.Add(
		[]byte(
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b, ports: " +
				"[{containerPort: 80}]}]}\n"))
	f.Add(
		[]byte(
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  spec: {volumes: [{name: v, " +
				"projected: {sources: [{}]}}], initContainers: [{livenessProbe: {grpc: {port: 1}}}]}\n"))
	f.Add(
		[]byte(
			"apiVersion: v1\nkind: PodList\nitems: [null, {spec: null}, {spec: {ephemeralContainers: [{lifecycle: " +
				"{preStop: {httpGet: {port: x}}}}], resources: {limits: {cpu: 1}}}}]"))
	f.Add(
		[]byte(
			"kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {k: v}\nbinaryData: {b: AAE=}\nimmutable: " +
				"true\n---\nkind: Secret\napiVersion: v1\ntype: kubernetes.io/tls\nstringData: {tls.crt: " +
				"x}\ndata: null\n"))
	f.Add(
		[]byte(
			"kind: SecretList\napiVersion: v1\nitems: [{metadata: {name: s}, type: kubernetes.io/dockercfg, " +
				"stringData: {.dockercfg: '[]'}}, null]\n---\nkind: RuntimeClass\napiVersion: " +
				"node.k8s.io/v1\nhandler: runc\noverhead: {podFixed: {cpu: -1}}\nscheduling: null\n"))
	f.Add(
		[]byte(
			"kind: List\napiVersion: v1\nitems:\n- {apiVersion: v1, kind: PersistentVolume, spec: {capacity: " +
				"{storage: 1e3}, hostPath: {path: /a}, nfs: {server: s}, local: null}}\n- {apiVersion: v1, kind: " +
				"PersistentVolumeClaim, spec: {resources: {requests: {storage: 1Gi}}, selector: " +
				"{matchExpressions: [{}]}}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, err := Decode(text, "f")
		if errs, ok := errors.AsType[Errors](err); err != nil && (!ok || len(errs) == 0) {
			t.Fatalf("error is not of type Errors: %v", err)
		}
		for _, o := range objects {
			if o.Value != nil {
				completeObject(t, o.Value)
				continue
			}
			Default(o.Pod)
			once := o.Pod.DeepCopy()
			Default(o.Pod)
			if diff := cmp.Diff(once, o.Pod); diff != "" {
				t.Errorf("defaulted twice (-once +twice):\n%s", diff)
			}
			_ = Validate(o.Pod).ToAggregate()
		}
	})
}

// completeObject completes a ConfigMap or another object as its source does.
func completeObject(t *testing.T, v object.Value) {
	t.Helper()
	object.Default(v)
	once := v.DeepCopyObject()
	object.Default(v)
	if diff := cmp.Diff(once, runtime.Object(v)); diff != "" {
		t.Errorf("defaulted twice (-once +twice):\n%s", diff)
	}
	valid := len(object.Validate(v)) == 0
	if again, ok := once.(object.Value); ok && valid &&
		(!object.Same(v, again) || len(object.ValidateUpdate(v, again)) > 0) {
		t.Errorf("the object differs from itself: %v", object.ValidateUpdate(v, again))
	}
}

// indent indents all lines but the first by two spaces.
func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// A lenient reader uses objects with unknown fields and keys given twice, and lists them for the object that has them.
func TestDecodeLenient(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\n"
	for _, tt := range []struct {
		name, text string
		want       []string // name: ignored fields
		err        string
	}{
		{"nothing to ignore", pod + "metadata: {name: a}\n", []string{"a: "}, ""},
		{"an unknown field", pod + "metadata: {name: a}\nspec: {hostnam: x}\n",
			[]string{`a: line 4: spec.hostnam: unknown field, did you mean "hostname"?`}, ""},
		{"a key given twice: the last value counts", pod + "metadata: {name: a, name: b}\n",
			[]string{"b: line 3: metadata.name: is given twice, first in line 3"}, ""},
		{"JSON", `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "name": "b"}, "spec": {"x": 1}}`,
			[]string{"b: line 1: metadata.name: is given twice, first in line 1; line 1: spec.x: unknown field"}, ""},
		{"items of a list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n" +
			"- {apiVersion: v1, kind: Pod, metadata: {name: b, nam: c}}\n",
			[]string{"a: ", `b: line 5: items[1].metadata.nam: unknown field, did you mean "name"?`}, ""},
		{"a value of the wrong type", pod + "metadata: {name: a}\nspec: {hostnam: x, hostNetwork: maybe}\n", nil,
			"f: pod default/a: "},
		{"no YAML", "a: [\n", nil, "f: line "},
	} {
		objects, err := DecodeLenient([]byte(tt.text), "f")
		var got []string
		for _, o := range objects {
			ignored := ""
			if len(o.Ignored) > 0 {
				ignored = o.Ignored.Error()
			}
			got = append(got, o.Pod.Name+": "+ignored)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if (tt.err == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
		}
	}
}

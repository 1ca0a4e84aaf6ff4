package content

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/manifest/manifesttest"
)

// manifestOf returns a minimal manifest of a pod.
func manifestOf(name, image string) string {
	return fmt.Sprintf(
		"apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: app, image: %s}]\n", name, image)
}

func docs(all ...string) string { return strings.Join(all, "---\n") }

func TestStatic(t *testing.T) {
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	type want struct {
		Name, Namespace, UID, Node string
		Annotations                map[string]string
		Tolerations                []corev1.Toleration
		Phase                      corev1.PodPhase
	}
	tests := []struct {
		name, text string
		from       pod.Source
		want       want
	}{
		{
			name: "from a file", from: pod.SourceFile, text: manifestOf("web", "app:1"),
			want: want{
				Name: "web-node-1", Namespace: "default", UID: "a9b8c7", Node: "Node-1", Phase: corev1.PodPending,
				Annotations: map[string]string{pod.AnnotationConfigSource: "file"},
				Tolerations: []corev1.Toleration{everything},
			},
		},
		{
			name: "from a URL", from: pod.SourceURL, text: manifestOf("web", "app:1"),
			want: want{
				Name: "web-node-1", Namespace: "default", UID: "a9b8c7", Node: "Node-1", Phase: corev1.PodPending,
				Annotations: map[string]string{pod.AnnotationConfigSource: "http"},
			},
		},
		{
			name: "exported from a cluster", from: pod.SourceFile,
			text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: prod\n  uid: 1234\n  " +
				"resourceVersion: '7'\n  creationTimestamp: 2024-01-01T00:00:00Z\n  deletionTimestamp: " +
				"2024-01-01T00:00:00Z\n" +
				"  annotations: {kubernetes.io/config.mirror: x, kubernetes.io/config.seen: s, mine: z}\n  " +
				"ownerReferences: [{apiVersion: v1, kind: Node, name: a, uid: u}]\n" +
				"spec:\n  nodeName: other\n  tolerations: [{operator: Exists, effect: NoExecute}]\n  containers: " +
				"[{name: app, image: app:1}]\nstatus: {phase: Running}\n",
			want: want{
				Name: "web-node-1", Namespace: "prod", UID: "1234", Node: "Node-1", Phase: corev1.PodPending,
				Annotations: map[string]string{pod.AnnotationConfigSource: "file", "mine": "z"},
				Tolerations: []corev1.Toleration{everything},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.ReplaceAll(tt.text, "uid: 1234", "uid: '1234'")
			p, err := static(manifesttest.Decode(t, text, "/m/web.yaml"), tt.from, "Node-1")
			if err != nil {
				t.Fatal(err)
			}
			got := want{p.Name, p.Namespace, string(p.UID), p.Spec.NodeName, p.Annotations, p.Spec.Tolerations,
				p.Status.Phase}
			if got.Annotations[pod.AnnotationConfigHash] != got.UID {
				t.Errorf("config.hash %q is not the UID %q", got.Annotations[pod.AnnotationConfigHash], got.UID)
			}
			delete(got.Annotations, pod.AnnotationConfigHash)
			if tt.want.UID == "a9b8c7" { // any UID: see TestUID
				tt.want.UID = got.UID
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !p.CreationTimestamp.IsZero() || p.DeletionTimestamp != nil || p.ResourceVersion != "" ||
				p.OwnerReferences != nil {
				t.Errorf("exported metadata was not removed: %+v", p.ObjectMeta)
			}
		})
	}
}

// The UID depends on the pod's content and place and on nothing else.
func TestUID(t *testing.T) {
	const base = "34a466077f8ee35bb7fab4be063ddce1"
	uid := func(text, origin, node string, from pod.Source) string {
		t.Helper()
		p, err := static(manifesttest.Decode(t, text, origin), from, node)
		if err != nil {
			t.Fatal(err)
		}
		return string(p.UID)
	}
	web := manifestOf("web", "app:1")
	if got := uid(web, "/m/web.yaml", "node", pod.SourceFile); got != base {
		t.Errorf("got %s, want %s: a change here restarts every static pod on an upgrade", got, base)
	}
	if got := uid("# other words\n"+strings.ReplaceAll(web, "kind: Pod\n", "kind: 'Pod'\n"), "/m/web.yaml", "node",
		pod.SourceFile); got != base {
		t.Errorf("the same content in another notation: got %s", got)
	}
	for what, got := range map[string]string{
		"image":  uid(manifestOf("web", "app:2"), "/m/web.yaml", "node", pod.SourceFile),
		"path":   uid(web, "/m/other.yaml", "node", pod.SourceFile),
		"node":   uid(web, "/m/web.yaml", "other", pod.SourceFile),
		"source": uid(web, "/m/web.yaml", "node", pod.SourceURL),
	} {
		if got == base {
			t.Errorf("a different %s gives the same UID", what)
		}
	}
}

func TestInvalidPod(t *testing.T) {
	o := manifesttest.Decode(t, docs("# first\n", manifestOf("Web", "' '")), "/m/web.yaml")
	_, err := static(o, pod.SourceFile, "node")
	const want = `/m/web.yaml: pod default/Web-node: line 3: metadata.name: Invalid value: "Web-node": `
	if reason.Of(err) != reason.FailedValidation || !strings.HasPrefix(reason.Message(err), want) ||
		!strings.Contains(reason.Message(err), "; spec.containers[0].image: ") {
		t.Errorf("reason %q, message %s", reason.Of(err), reason.Message(err))
	}
	elsewhere := strings.Replace(manifestOf("web", "a"), "spec:", "spec:\n  nodeName: other", 1)
	_, err = Local(manifesttest.Decode(t, elsewhere, "-"), "node")
	const wantNode = `-: pod default/web: line 1: spec.nodeName: Invalid value: "other": this node is "node"`
	if reason.Message(err) != wantNode {
		t.Errorf("got %v, want %s", err, wantNode)
	}
}

func TestKeep(t *testing.T) {
	a1, a2 := manifesttest.Pod("a", "a1", "f"), manifesttest.Pod("a", "a2", "f")
	b1, c1 := manifesttest.Pod("b", "b1", "f"), manifesttest.Pod("c", "c1", "f")
	tests := []struct {
		name       string
		last, good []*pod.Pod
		faulty     bool
		want       []*pod.Pod
	}{
		{"a good file replaces all", []*pod.Pod{a1, b1}, []*pod.Pod{a2}, false, []*pod.Pod{a2}},
		{"a good file without pods removes all", []*pod.Pod{a1, b1}, nil, false, nil},
		{"a broken file keeps all", []*pod.Pod{a1, b1}, nil, true, []*pod.Pod{a1, b1}},
		{"good documents of a broken file count", []*pod.Pod{a1, b1}, []*pod.Pod{a2, c1}, true, []*pod.Pod{a2, c1, b1}},
		{"broken from the start", nil, []*pod.Pod{a1}, true, []*pod.Pod{a1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Keep(Wanted{Pods: tt.last}, Wanted{Pods: tt.good}, tt.faulty).Pods
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuild(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
		problems   map[types.NamespacedName]string
	}{
		{"empty", " \n# nothing\n", nil,
			map[types.NamespacedName]string{
				{}: "f: is empty; next: remove it, or give it an empty List if no pod should run"}},
		{"empty List", "apiVersion: v1\nkind: List\nitems: []\n", nil, nil},
		{
			name: "an unknown field is ignored", text: manifestOf("a", "a") + "  comand: [x]\n",
			want: []string{"a-node"},
			problems: map[types.NamespacedName]string{{Namespace: "default", Name: "a-node"}: "FieldIgnored: f: pod " +
				"default/a-node: line 6: spec.comand: unknown field; next: correct the manifest, which is used " +
				"without unknown fields and with the last value of a key that is given twice"},
		},
		{
			name: "good, unreadable and invalid",
			text: docs(manifestOf("a", "a"), "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: 3\n",
				"apiVersion: v1\nkind: Pod\nmetadata: {name: c}\n"),
			want: []string{"a-node"},
			problems: map[types.NamespacedName]string{
				{Namespace: "default",
					Name: "b"}: "FailedValidation: f (document 2): pod default/b: line 10: spec: wants an " +
					"object, got 3",
				{Namespace: "default",
					Name: "c-node"}: "FailedValidation: f (document 3): pod default/c-node: line 12: " +
					"spec.containers: Required value: a pod has at least one",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, problems := Build([]byte(tt.text), "f", pod.SourceFile, "node")
			var got []string
			for _, p := range w.Pods {
				got = append(got, p.Name)
			}
			var texts map[types.NamespacedName]string
			for _, p := range problems {
				if texts == nil {
					texts = map[types.NamespacedName]string{}
				}
				texts[p.Pod] = p.Err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.problems, texts); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

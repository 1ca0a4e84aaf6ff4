package server_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/api/servertest"
)

func TestAmend(t *testing.T) {
	a := servertest.Start(t)
	a.Put(servertest.Pod("web", "app"))
	a.Put(servertest.Pod("two", "app", "side"))
	const web, two = "/berth/v1/pods/default/web/", "/berth/v1/pods/default/two/"
	for _, tt := range []struct{ path, body, want string }{
		{two + "resize", `{"resources":{"limits":{"cpu":"1"}}}`,
			"400 BadRequest: pod default/two has several containers -> name one: app, side"},
		{web + "resize", `{"container":"app"}`,
			"400 BadRequest: the resize names no requests and no limits -> name what is to change, such as limits.cpu"},
		{web + "resize", `{"size":1}`, `400 BadRequest: read body: json: unknown field "size" -> send one JSON ` +
			`object, as docs/local-api.md shows it`},
		{web + "ephemeralcontainers", `{} {}`, "400 BadRequest: read body: there is more than one object -> send " +
			"one JSON object, as docs/local-api.md shows it"},
		{web + "conditions", `{"type":"a b","status":"True"}`,
			`400 BadRequest: condition type "a b": name part must consist of alphanumeric characters, '-', '_' or ` +
				`'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or ` +
				`'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') -> name it as ` +
				`the pod's readinessGates do, such as example.com/lb`},
		{web + "conditions", `{"type":"lb","status":"yes"}`,
			`400 BadRequest: condition status "yes" -> give True, False or Unknown`},
		{"/berth/v1/pods/default/none/conditions", `{"type":"lb","status":"True"}`,
			`404 NotFound: pods "default/none" not found -> list the pods of this node with "berth get pods -A"`},
		{"/berth/v1/pods/default/none/resize", `{}`,
			`404 NotFound: pods "default/none" not found -> list the pods of this node with "berth get pods -A"`},
	} {
		_, body := ask(t, a, "POST", tt.path, tt.body)
		if diff := cmp.Diff(tt.want, brief(t, body)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.path, tt.body, diff)
		}
	}
	ask(t, a, "POST", web+"resize", `{"resources":{"limits":{"cpu":"1"}}}`)
	code, body := ask(t, a, "POST", web+"ephemeralcontainers",
		`{"name":"debug","image":"tools:1","targetContainerName":"app"}`)
	var p corev1.Pod
	if err := json.Unmarshal([]byte(body), &p); err != nil || code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	want := corev1.PodSpec{NodeName: "node",
		Containers: []corev1.Container{{Name: "app", Image: "example.test/app:v1",
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}},
		EphemeralContainers: []corev1.EphemeralContainer{{TargetContainerName: "app",
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "tools:1"}}},
	}
	if diff := cmp.Diff(want, p.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

package identity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNamesAndLabelsReadBack(t *testing.T) {
	pod := &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u-1", Attempt: 3}
	labels, annotations := map[string]string{"app": "web", "empty": ""}, map[string]string{"a/b": "{}\n"}
	sandbox, err := Read("/"+SandboxName(pod), SandboxLabels(labels, annotations, "s"))
	want := Identity{Sandbox: true, Pod: pod, Spec: "s", Labels: labels, Annotations: annotations}
	if diff := cmp.Diff(want, sandbox, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("sandbox: %v %s", err, diff)
	}
	meta := &runtimeapi.ContainerMetadata{Name: "c", Attempt: 2}
	name := Suffixed(ContainerName(pod, meta), 0xabc)
	if name != "k8s_c_web_default_u-1_2_00000abc" {
		t.Errorf("name %s", name)
	}
	want = Identity{Pod: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u-1"},
		Container: meta, SandboxID: "id", LogPath: "/log", Spec: "s", Cgroup: "{}", Labels: labels,
		Annotations: annotations}
	container, err := Read(name, ContainerLabels(want))
	if diff := cmp.Diff(want, container, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("container: %v %s", err, diff)
	}
}

// A container of cri-dockerd has no label of Berth.
func TestReadContainerOfCRIDockerd(t *testing.T) {
	got, err := Read("/k8s_POD_web_default_u-1_0", map[string]string{
		"io.kubernetes.docker.type": "podsandbox", "io.kubernetes.container.name": "POD", "app": "web",
		"annotation.x": "y",
	})
	if err != nil || !got.Sandbox || got.Spec != "" || len(got.Labels) != 1 || got.Annotations["x"] != "y" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestReadRefusesOtherContainers(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"/db": {}, "/k8s_a_b": {kindLabel: containerKind}, "/k8s_c_p_n_u_x": {kindLabel: containerKind},
	} {
		if got, err := Read(name, labels); err == nil {
			t.Errorf("%s is %v", name, got)
		}
	}
}

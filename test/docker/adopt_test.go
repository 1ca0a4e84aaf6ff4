package docker

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The shim lists containers with cri-dockerd's names and labels. Their log stays a link to Docker's file.
func TestContainersOfCRIDockerdAreAdopted(t *testing.T) {
	n := start(t)
	id := n.daemon.Run(t, workload, []string{"print", "hello", "then", "sleep"},
		func(c *container.Config, h *container.HostConfig) {
			c.Labels = map[string]string{"io.kubernetes.docker.type": "container", "app": "old", "annotation.a/b": "c",
				"io.kubernetes.sandbox.id": "0123", "io.kubernetes.container.logpath": filepath.Join(n.dir, "old.log")}
			h.PidMode = ""
		})
	if _, err := n.daemon.Client().ContainerRename(t.Context(), id,
		client.ContainerRenameOptions{NewName: "k8s_web_old_default_u-1_2"}); err != nil {
		t.Fatal(err)
	}
	var listed []*runtimeapi.Container
	n.eventually(t, "the container is listed", func() bool {
		r, err := n.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"app": "old"}}})
		if err != nil {
			t.Fatal(err)
		}
		listed = r.Containers
		return len(listed) == 1
	})
	c := listed[0]
	if diff := cmp.Diff(map[string]string{"a/b": "c"}, c.Annotations); diff != "" || c.PodSandboxId != "0123" ||
		c.Metadata.Name != "web" || c.Metadata.Attempt != 2 || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("%s %s", c, diff)
	}
	if matches, _ := filepath.Glob(filepath.Join(n.dir, "old.log")); len(matches) > 0 {
		t.Error("the shim has made a log in place of cri-dockerd's link")
	}
	_, err := n.Runtime.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err != nil {
		t.Error(err)
	}
}

package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/test/image"
)

const imageName = "berth.test/workload:1"

// The writable layers of containers are below the directory that Store names, in each image store of an Engine.
func TestStoreHasTheLayersOfContainers(t *testing.T) {
	archive, err := image.Build(t.Context(), t.TempDir(), imageName)
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"default": nil, "Docker's own": {"--storage-driver=overlay2"}} {
		t.Run(name, func(t *testing.T) {
			d := dockertest.StartWith(t, dockertest.Options{Args: args}, archive)
			engine, err := docker.New(docker.Scheme + d.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = engine.Close() })
			store, err := New(engine, nil, nil, "").Store(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			id := d.Run(t, imageName, []string{"sleep"}, nil)
			mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", d.PidOf(t, id)))
			if err != nil {
				t.Fatal(err)
			}
			root, _, _ := strings.Cut(string(mounts), "\n")
			if store == "" || !strings.Contains(root, ",upperdir="+store+"/") {
				t.Errorf("the store is %s, the container's root is %s", store, root)
			}
		})
	}
}

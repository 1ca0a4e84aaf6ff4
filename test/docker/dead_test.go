package docker

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockertest"
)

var deadContainers = flag.Int("dead", 1000, "how many dead containers there are in TestManyDeadContainers")

// A shim that finds very many dead containers lists them soon, waits for none of their logs, and starts pods.
func TestManyDeadContainers(t *testing.T) {
	count := *deadContainers
	n := startWith(t, dockertest.Options{Args: []string{"--storage-driver=overlay2"}}) // its files are copied
	pod := n.pod("dead")
	sandbox := n.run(t, pod)
	config := workloadOf("c", "print", "one", "two")
	id := n.create(t, sandbox, pod, config)
	n.startContainer(t, id)
	n.awaitExit(t, id)
	log := filepath.Join(pod.LogDirectory, config.LogPath)

	n.stop()
	n.restartDockerd(t, unix.SIGTERM, func() {
		for attempt := 1; attempt <= count; attempt++ {
			n.cloneDead(t, id, log, attempt)
		}
	})
	t.Cleanup(func() { // faster than by the Engine API
		n.restartDockerd(t, unix.SIGTERM, func() { n.removeClones(t) })
		n.awaitLists(t) // the removal of the pods needs it
	})
	began := time.Now()
	n.begin(t)
	took := time.Since(began)
	list := func() []*runtimeapi.Container {
		r, err := n.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Containers
	}
	began = time.Now()
	all := list()
	t.Logf("the first list after %s, another one takes %s", took.Round(time.Millisecond), time.Since(began))
	if len(all) != count+1 {
		t.Errorf("%d containers, want %d", len(all), count+1)
	}
	for _, c := range all {
		if c.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Fatalf("container %s", c)
		}
	}
	next := n.pod("next")
	alive := workloadOf("c", "print", "ready", "then", "sleep")
	n.launchContainer(t, n.run(t, next), next, alive, "ready")
	if got, err := os.ReadFile(fmt.Sprintf("%s.%d", log, count)); err != nil || strings.Count(string(got), "\n") != 2 {
		t.Errorf("the log of a dead container: %q, %v", got, err)
	}
}

// clonePrefix begins the IDs of clones.
const clonePrefix = "c1042e"

// mounts has a directory for the writable layer of each container.
const mounts = "image/overlay2/layerdb/mounts"

// cloneDead makes a copy of a dead container in the files of a dockerd that does not run, with a log of its own. To
// create thousands by the Engine API would take minutes.
func (n *node) cloneDead(t *testing.T, id, log string, attempt int) {
	t.Helper()
	random := make([]byte, 29)
	if _, err := io.ReadFull(rand.Reader, random); err != nil {
		t.Fatal(err)
	}
	clone := clonePrefix + hex.EncodeToString(random)
	for _, dir := range []string{"containers", mounts} {
		to := filepath.Join(n.daemon.Root(), dir, clone)
		if err := os.CopyFS(to, os.DirFS(filepath.Join(n.daemon.Root(), dir, id))); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(n.daemon.Root(), "containers", clone)
	path := filepath.Join(dir, "config.v2.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var model map[string]any
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), id, clone)), &model); err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("%s.%d", log, attempt)
	name := model["Name"].(string)
	model["Name"] = fmt.Sprintf("%s_%d", name[:strings.LastIndex(name, "_")], attempt)
	model["Config"].(map[string]any)["Labels"].(map[string]any)["io.kubernetes.container.logpath"] = own
	if text, err = json.Marshal(model); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.WriteFile(path, text, 0o600), os.WriteFile(own, content, 0o600),
		os.Rename(filepath.Join(dir, id+"-json.log"), filepath.Join(dir, clone+"-json.log")))
	if err != nil {
		t.Fatal(err)
	}
}

// removeClones removes the clones from the files of a dockerd that does not run.
func (n *node) removeClones(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"containers", mounts} {
		clones, err := filepath.Glob(filepath.Join(n.daemon.Root(), dir, clonePrefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range clones {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

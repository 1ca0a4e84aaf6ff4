package attachment

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
)

// newTable returns a table, the Node objects that it reads, and the stage directory of a volume.
func newTable(t *testing.T, root string) (*Table, *store.Table[string, *corev1.Node], string) {
	t.Helper()
	nodes := store.New[string, *corev1.Node]()
	stage := filepath.Join(root, "plugins", "kubernetes.io~flexvolume", "1", "globalmount")
	if err := os.MkdirAll(stage, 0o750); err != nil {
		t.Fatal(err)
	}
	return New(Options{Root: root, Node: "n", Nodes: nodes, InUseChanged: wake.New(), Now: time.Now}), nodes, stage
}

func node(inUse, attached bool) *corev1.Node {
	n := &corev1.Node{}
	if inUse {
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"d/v"}
	}
	if attached {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "d/v", DevicePath: "/dev/x"}}
	}
	return n
}

func TestAttachedWaitsForTheNode(t *testing.T) {
	for name, test := range map[string]struct {
		node *corev1.Node
		want string // the error
	}{
		"not in use": {node(false, true),
			"volume d/v has not been added to the list of VolumesInUse in the node's volume status"},
		"not attached": {node(true, false),
			"volume d/v is not in the node's status.volumesAttached: waiting for the attach/detach controller"},
		"attached": {node(true, true), ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			table, nodes, stage := newTable(t, t.TempDir())
			nodes.Put("n", test.node)
			device, err := table.Attached(t.Context(), "d/v", stage)
			switch {
			case test.want == "" && (device != "/dev/x" || err != nil):
				t.Errorf("%s: got %q, %v", name, device, err)
			case test.want != "" && (err == nil || err.Error() != test.want):
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
}

func TestNodeChangedEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, nodes, stage := newTable(t, t.TempDir())
		nodes.Put("n", node(true, false))
		began, done := time.Now(), make(chan error, 1)
		go func() {
			_, err := table.Attached(t.Context(), "d/v", stage)
			done <- err
		}()
		synctest.Wait()
		nodes.Put("n", node(true, true))
		table.NodeChanged()
		if err := <-done; err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestTheNextAgentReportsAttachedVolumes(t *testing.T) {
	root := t.TempDir()
	table, nodes, stage := newTable(t, root)
	nodes.Put("n", node(true, true))
	if _, err := table.Attached(t.Context(), "d/v", stage); err != nil {
		t.Fatal(err)
	}
	inUse := func(table *Table) []corev1.UniqueVolumeName {
		table.Restore(nil)
		all, known := table.InUse()
		if !known {
			t.Error("the volumes in use are not known after Restore")
		}
		return all
	}
	next, _, _ := newTable(t, root)
	if diff := cmp.Diff([]corev1.UniqueVolumeName{"d/v"}, inUse(next)); diff != "" {
		t.Error(diff)
	}
	if err := next.Release("d/v", stage); err != nil {
		t.Fatal(err)
	}
	after, _, _ := newTable(t, root)
	if all := inUse(after); len(all) != 0 {
		t.Errorf("released volumes are in use: %v", all)
	}
}

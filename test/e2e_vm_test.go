package test

import (
	"encoding/json"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

// TestControlPlane is the control plane for the machine of test/vm, whose clock is its own. It
// writes how that machine finds it to file descriptor 3 and ends with its standard input.
func TestControlPlane(t *testing.T) {
	if os.Getenv("BERTH_TEST_CONTROL_PLANE") == "" {
		t.Skip("test/vm starts it")
	}
	const where = 3
	unix.CloseOnExec(where) // its end is heard when nobody has it
	c := kubeapitest.Start(t, kubeapitest.Options{
		Controllers: true, Scheduler: true, ControllerManager: []string{"--cluster-signing-duration=1h"},
	})
	found := os.NewFile(where, "found")
	check(t, json.NewEncoder(found).Encode(kubeapitest.RemoteOf(c)))
	check(t, found.Close())
	_, err := io.Copy(io.Discard, os.Stdin)
	check(t, err)
}

// startCluster starts a control plane, or has the one that this machine was given.
func startCluster(t *scriptT, controllerManager []string) *kubeapitest.Cluster {
	if !inVM() {
		return kubeapitest.Start(t,
			kubeapitest.Options{Controllers: true, Scheduler: true, ControllerManager: controllerManager})
	}
	if len(controllerManager) > 0 {
		t.Fatalf("cluster start %q: the flags in this machine are those of TestControlPlane", controllerManager)
	}
	var r kubeapitest.Remote
	if err := json.Unmarshal([]byte(os.Getenv("BERTH_TEST_CLUSTER")), &r); err != nil {
		t.Fatalf("read $BERTH_TEST_CLUSTER: %v", err)
	}
	return kubeapitest.Attach(t, r)
}

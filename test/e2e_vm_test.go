package test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

// TestControlPlane runs a control plane for the emulated machine of test/vm, whose clock scripts change. It writes the
// addresses and credentials for that machine to file descriptor 3, and ends when its standard input ends.
func TestControlPlane(t *testing.T) {
	if os.Getenv("BERTH_TEST_CONTROL_PLANE") == "" {
		t.Skip("only test/vm starts it, for the scripts of test/e2e in the emulated machine")
	}
	const output = 3
	unix.CloseOnExec(output) // test/vm reads until no process has the descriptor open
	c := kubeapitest.Start(t, kubeapitest.Options{
		Controllers: true, Scheduler: true, ControllerManager: []string{"--cluster-signing-duration=1h"},
	})
	remote := os.NewFile(output, "remote")
	check(t, json.NewEncoder(remote).Encode(kubeapitest.RemoteOf(c)))
	check(t, remote.Close())
	_, err := io.Copy(io.Discard, os.Stdin)
	check(t, err)
}

// startCluster starts a control plane. In the emulated machine it uses the one outside, which test/vm started.
func startCluster(t *scriptT, controllerManager []string) *kubeapitest.Cluster {
	if !inVM() {
		return kubeapitest.Start(t,
			kubeapitest.Options{Controllers: true, Scheduler: true, ControllerManager: controllerManager})
	}
	if len(controllerManager) > 0 {
		t.Fatalf("cluster start %q: in the emulated machine, TestControlPlane sets the flags", controllerManager)
	}
	var r kubeapitest.Remote
	if err := json.Unmarshal([]byte(os.Getenv("BERTH_TEST_CLUSTER")), &r); err != nil {
		t.Fatalf("read $BERTH_TEST_CLUSTER: %v", err)
	}
	c := kubeapitest.Attach(t, r)
	removeOthers(t, c.Client())
	return c
}

// removeOthers removes what the script before has left in the control plane: its node, pods and events.
func removeOthers(t *scriptT, client kubernetes.Interface) {
	ctx := context.Background()
	t.Check(client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	t.Check(pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}))
	list, err := pods.List(ctx, metav1.ListOptions{})
	t.Check(err)
	if len(list.Items) > 0 {
		t.Fatalf("pod %s of another script is still there", list.Items[0].Name)
	}
	t.Check(client.CoreV1().Events(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}))
}

package test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-run/berth/internal/node/kernel"
	"github.com/berth-run/berth/test/containerd"
	"github.com/berth-run/berth/test/kubelet"
)

// nodeName is the node that a script's agent and kubelet are.
const nodeName = "node1"

// TestE2E runs the scripts on a node of a real cluster, each with a control plane
// of its own. Those of e2e/containerd have the machine's containerd, which a
// kubelet can use too.
func TestE2E(t *testing.T) {
	keepSettings(t)
	for runtime, dir := range map[string]string{"containerd": "e2e/containerd", "embedded": "e2e"} {
		t.Run(runtime, func(t *testing.T) {
			runE2E(t, runtime, dir)
		})
	}
	t.Run("moving", testMoving)
}

// testMoving is a node whose addresses change: it has a network of its own, with the
// control plane on its loopback, which the script may do with what it likes.
func testMoving(t *testing.T) {
	if os.Getenv(placeEnv) != "" {
		runE2E(t, "embedded", "e2e/moving")
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestE2E$/^moving$", "-test.v",
		"-patience="+patience.String())
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", placeEnv, claimed(t)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	check(t, err)
}

// runE2E runs the scripts of a directory.
func runE2E(t *testing.T, runtime, dir string) {
	t.Helper()
	h := newHarness(t, runtime)
	commands := h.commands()
	maps.Copy(commands, h.clusterCommands())
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireExplicitExec: true, RequireUniqueNames: true, Condition: h.condition, Cmds: commands,
		Setup: func(env *testscript.Env) error {
			env.Values[nodeKey{}] = &node{drivers: map[string]*csiDriver{}}
			env.Defer(func() { kubelet.RemoveCgroups(env.Getenv("CGROUP")) }) // when nothing runs any more
			return h.setup(env)
		},
	})
}

// keepSettings has the kernel as it was when the test ends: an agent of a cluster sets
// what a kubelet does.
func keepSettings(t *testing.T) {
	t.Helper()
	for _, name := range kernel.Names() {
		path := filepath.Join(kernel.Root, name)
		was, err := os.ReadFile(path)
		check(t, err)
		t.Cleanup(func() {
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, was) {
				check(t, os.WriteFile(path, was, 0o644))
			}
		})
	}
}

// newHarness needs what make build and make image build.
func newHarness(t *testing.T, runtime string) *harness {
	t.Helper()
	h := &harness{runtime: runtime}
	for path, to := range map[string]*string{"../bin/berth": &h.bin, "../bin/workload.tar": &h.archive} {
		var err error
		*to, err = filepath.Abs(path)
		check(t, err)
		if _, err := os.Stat(*to); err != nil {
			t.Fatalf("%v: run make build image", err)
		}
	}
	if runtime == "containerd" {
		var err error
		h.parts, err = containerd.Build(t.Context(), t.TempDir(), "../tools", h.archive)
		check(t, err)
	}
	return h
}

// clusterCommands are what the scripts of e2e have besides the others:
//
//	cluster start [FLAG...]     etcd, kube-apiserver, kube-controller-manager (the flags are for it) and
//	                            kube-scheduler; $CONFIG has
//	                            what a node of it needs, $NODE its kubeconfig, $BOOTSTRAP one with a bootstrap
//	                            token, $KUBECONFIG the administrator's,
//	                            $SERVER the API server's URL, $NODE_IP the node's address, $PORT a port that
//	                            nobody listens on
//	                            in the machine of test/vm it is another machine's, see TestControlPlane
//	cluster stop                all of it ends
//	join [FLAG...]              agent start as $NODE says, until the node is ready
//	kubelet start [devices], kubelet stop|kill
//	                            the kubelet itself, as the same node, on the external runtime; start waits
//	                            until the node is ready; devices are what the root directory has of device
//	                            plugins, in one script at a time
//	kubectl ARGS...             as the administrator; "exec kubectl" works too, so in the background
//	terminal COLSxROWS [-dialog FILE] ARGS...
//	                            kubectl on a terminal, see there
//	create FILE                 kubectl create of FILE with $IMAGE, $REGISTRY, $SERVER, $WORK,
//	                            $METRICS_PORT, $CA_BUNDLE and $CDI in it
//	metrics-server              the resource metrics of the node, see startMetricsServer
//	apiserver kill|start|pause|resume
//	etcd pause DURATION         it stands still so long
//	nodes cut|disconnect|connect
//	                            the connections of nodes to the API server
//	controllers pause|resume    kube-controller-manager
//	inject METHOD PATH CODE N [METHOD PATH CODE N]...
//	                            the API server answers the next N requests of nodes with this method and
//	                            this part of a path so, one line of these after the other; N 0 is all, until
//	                            "inject none"
//	await-injected              all were answered so that were to be
//	expire                      $NODE is a kubeconfig whose certificate has expired
//	renew                       the same file has a new one
//	dra-driver start DEVICE...  the sample DRA driver $CDI, whose devices have a name in CDI; each sets a
//	                            variable of its name, and brings a node /dev/DEVICE
//	dra-driver stop             it ends; what it has published stays
//	dra-driver sick DEVICE
//	dra-driver hang prepare|unprepare
//	dra-driver answer
//	dra-driver refuse [WHY]     it fails calls, or fails them no more
//	dra-driver await CALL       it was asked so, as in prepare default/CLAIM
//	dra-driver calls FILE       what it was asked, in order
//	dra-driver prepared N       so many claims are prepared
//	csi-driver start NAME [driver=NAME] [version=V] [limit=N] [topology=KEY=VALUE] [can=CAPABILITY,...]
//	                            a CSI driver that registers, or the same again; its volumes are in $WORK/volumes
//	csi-driver stop NAME        it is gone, and what it has mounted stays
//	csi-driver attach|detach NAME
//	                            its external-attacher, from now on or no more
//	csi-driver fail NAME METHOD CODE|hang, csi-driver heal NAME METHOD
//	csi-driver await NAME METHOD [N]
//	                            it was asked N times, or once more
//	csi-driver calls NAME FILE  what it was asked of volumes, in order
//	csi-driver requests NAME METHOD FILE
//	                            the requests as JSON, a line each
//	ask USER METHOD PATH CODE FILE
//	                            a request to the node's own port; see ask
//	await-node-ready STATUS     the API server shows the node's Ready condition so
//	await-renewed               the node's lease is renewed
//	await-deleted POD           the API server has it no more, and nothing of it is left by then
//	await-pod POD CONDITION     the API server shows a pod so: see await
//	await-converged             the API server, the node and its runtime tell the same, see there
func (h *harness) clusterCommands() map[string]func(*testscript.TestScript, bool, []string) {
	positive := func(least, most int,
		f func(*testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < least || len(args) > most {
				ts.Fatalf("arguments: %q; see clusterCommands", args)
			}
			f(ts, args)
		}
	}
	return map[string]func(*testscript.TestScript, bool, []string){
		"kubectl": kubectl,
		"create":  positive(1, 1, create),
		"terminal": positive(2, 1<<10, func(ts *testscript.TestScript, args []string) {
			kubectl := []string{"kubectl", "--kubeconfig", ts.Getenv("KUBECONFIG")}
			onTerminal(ts, args, func(args ...string) *exec.Cmd {
				return exec.Command(nodeOf(ts).cluster.Program(), append(kubectl, args...)...)
			})
		}),
		"cluster":          positive(1, 1<<10, h.clusterCommand),
		"metrics-server":   positive(0, 0, startMetricsServer),
		"join":             positive(0, 1<<10, h.join),
		"kubelet":          positive(1, 2, h.kubelet),
		"apiserver":        positive(1, 1, apiserver),
		"etcd":             positive(2, 2, etcd),
		"nodes":            positive(1, 1, nodes),
		"inject":           positive(1, 1<<10, inject),
		"await-injected":   positive(0, 0, awaitInjected),
		"controllers":      positive(1, 1, controllers),
		"ask":              positive(5, 5, ask),
		"expire":           positive(0, 0, expire),
		"renew":            positive(0, 0, renew),
		"await-deleted":    positive(1, 1, h.awaitDeleted),
		"dra-driver":       positive(1, 1<<10, draDriver),
		"csi-driver":       positive(2, 1<<10, h.csiDriver),
		"await-node-ready": positive(1, 1, awaitNodeReady),
		"await-renewed":    positive(0, 0, awaitRenewed),
		"await-pod":        positive(2, 2, awaitPod),
		"await-converged":  positive(0, 0, h.awaitConverged),
	}
}

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

// nodeName is the name that a script's agent or kubelet registers its node with.
const nodeName = "node1"

// TestE2E runs the scripts of test/e2e on a node of a real cluster. Each script has its own control plane. The scripts
// of e2e/containerd use the machine's containerd, because a kubelet can use it too.
func TestE2E(t *testing.T) {
	keepSettings(t)
	for runtime, dir := range map[string]string{"containerd": "e2e/containerd", "embedded": "e2e"} {
		t.Run(runtime, func(t *testing.T) {
			runE2E(t, runtime, dir)
		})
	}
	t.Run("moving", testMoving)
}

// testMoving runs the scripts that change the node's addresses. The test starts itself again in a new network
// namespace, with the control plane on that loopback interface. There the scripts may change the network at will.
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
			env.Defer(func() { kubelet.RemoveCgroups(env.Getenv("CGROUP")) }) // runs last, after all pods have ended
			return h.setup(env)
		},
	})
}

// keepSettings restores the kernel's settings when the test ends, because an agent in a cluster changes the same
// settings as a kubelet.
func keepSettings(t *testing.T) {
	t.Helper()
	for _, name := range kernel.Names() {
		path := filepath.Join(kernel.Root, name)
		before, err := os.ReadFile(path)
		check(t, err)
		t.Cleanup(func() {
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
				check(t, os.WriteFile(path, before, 0o644))
			}
		})
	}
}

// newHarness returns the harness for scripts on a runtime. It needs the files from make build and make image.
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

// clusterCommands returns the commands that only the scripts of test/e2e have. They also have harness.commands.
//
// The cluster:
//
//	cluster start [FLAG...]     starts etcd, kube-apiserver, kube-scheduler and kube-controller-manager, which gets
//	                            the flags. Adds to $CONFIG what a node needs. Sets $NODE to the node's kubeconfig,
//	                            $BOOTSTRAP to one with a bootstrap token, $KUBECONFIG to the administrator's,
//	                            $SERVER to the API server's URL, and $NODE_IP to the node's address. In the machine
//	                            of test/vm it uses a control plane outside, see TestControlPlane
//	cluster stop                ends the control plane
//	kubectl ARGS...             runs kubectl as the administrator; "exec kubectl ... &" runs it in the background
//	terminal COLSxROWS [-dialog FILE] ARGS...
//	                            runs kubectl on a terminal, as harness.commands says of berth
//	create FILE                 runs kubectl create with FILE, after it has replaced $IMAGE, $REGISTRY, $SERVER,
//	                            $WORK, $METRICS_PORT, $CA_BUNDLE, $CDI and $PORT in it
//	metrics-server              serves the node's resource metrics, see startMetricsServer
//	apiserver kill|start|pause|resume
//	                            ends, starts, freezes or continues kube-apiserver
//	etcd pause DURATION         freezes etcd for this time
//	controllers pause|resume    freezes or continues kube-controller-manager
//	nodes cut|disconnect|connect
//	                            cuts the nodes' connections to the API server once; keeps them cut; allows them
//	inject METHOD PATH CODE N [METHOD PATH CODE N]..., inject none
//	                            makes the API server answer the next N requests of nodes that have this method,
//	                            and PATH in their path, with the status CODE. N 0 stands for all requests until
//	                            "inject none"
//	await-injected              waits until every injected fault has occurred N times
//
// The node:
//
//	join [FLAG...]              starts the agent with the kubeconfig $NODE and waits until the node is ready
//	kubelet start [devices]     starts the real kubelet as the same node on the external runtime, and waits until
//	                            the node is ready. With "devices" it continues with the agent's allocations of
//	                            device plugins, which only one script at a time may do
//	kubelet stop|kill           ends the kubelet with SIGTERM or SIGKILL
//	expire                      makes $NODE a kubeconfig whose certificate has expired
//	renew                       replaces the file $NODE by one with a valid certificate
//	ask USER METHOD PATH CODE FILE
//	                            sends a request to the node's own port, checks the status code, and writes the body
//	                            to FILE. USER is a name, "admin", or "nobody" for no certificate
//	token-flood                 starts pods on the quiet node, and again beside a flood of requests with random bearer
//	                            tokens; fails if the pods or the lease wait for the flood, or no request gets 429
//	await-node-ready STATUS     waits until the API server has this Ready condition of the node
//	await-renewed               waits until the node's lease is renewed
//	await-pod POD CONDITION     waits for a condition of "await", in the API server's status of the pod
//	await-deleted POD           waits until the API server has deleted the pod, and fails if the node then still
//	                            has a container or the directory of it
//	await-converged             waits until the API server, the node and its runtime agree about all pods
//
// Pages:
//
//	block PAGE REGEXP           runs the first block of commands in a page that matches and needs a cluster, as it is
//	                            written there, see clusterBlock
//
// Drivers:
//
//	dra-driver start DEVICE...  starts the sample DRA driver, named $CDI, with these devices. A container with a
//	                            device gets a variable of its name and the node /dev/DEVICE
//	dra-driver stop             ends it; its ResourceSlices stay
//	dra-driver sick DEVICE      makes it report the device as unhealthy
//	dra-driver hang prepare|unprepare, dra-driver answer
//	                            makes calls of a method hang; answers them again
//	dra-driver refuse [WHY]     makes calls fail with the error WHY, or succeed again
//	dra-driver await CALL       waits for a call, such as "prepare default/CLAIM"
//	dra-driver calls FILE       writes the calls so far to FILE, in order
//	dra-driver prepared N       fails unless N claims are prepared
//	csi-driver start NAME [driver=NAME] [version=V] [limit=N] [topology=KEY=VALUE] [can=CAPABILITY,...]
//	                            starts a CSI driver that registers, or starts it again after a stop. Its volumes
//	                            are in $WORK/volumes
//	csi-driver stop NAME        ends it; its mounts stay
//	csi-driver attach|detach NAME
//	                            starts or ends its external-attacher
//	csi-driver fail NAME METHOD CODE|hang, csi-driver heal NAME METHOD
//	                            makes calls of a method fail with a gRPC code or hang; lets them succeed again
//	csi-driver await NAME METHOD [N]
//	                            waits for the Nth call of the method, or for one more call
//	csi-driver calls NAME FILE  writes the calls about volumes to FILE, in order
//	csi-driver requests NAME METHOD FILE
//	                            writes the requests of the method to FILE as JSON, a line for each
//	signer start                answers PodCertificateRequests, as the signers example.com/issues, example.com/denies
//	                            and example.com/fails
//	signer verify POD FILE      fails unless FILE is a private key with the pod's certificate of that signer
func (h *harness) clusterCommands() map[string]func(*testscript.TestScript, bool, []string) {
	positive := func(least, most int,
		f func(*testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < least || len(args) > most {
				ts.Fatalf("unexpected arguments %q; next: see the command in the comment of clusterCommands", args)
			}
			f(ts, args)
		}
	}
	return map[string]func(*testscript.TestScript, bool, []string){
		"kubectl": kubectl,
		"create":  positive(1, 1, create),
		"terminal": positive(2, 1<<10, func(ts *testscript.TestScript, args []string) {
			kubectl := []string{"kubectl", "--kubeconfig", ts.Getenv("KUBECONFIG")}
			onTerminal(ts, args, func([]byte) {}, func(args ...string) *exec.Cmd {
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
		"token-flood":      positive(0, 0, tokenFlood),
		"expire":           positive(0, 0, expire),
		"renew":            positive(0, 0, renew),
		"await-deleted":    positive(1, 1, h.awaitDeleted),
		"dra-driver":       positive(1, 1<<10, draDriver),
		"csi-driver":       positive(2, 1<<10, h.csiDriver),
		"signer":           positive(1, 3, signCommand),
		"await-node-ready": positive(1, 1, awaitNodeReady),
		"await-renewed":    positive(0, 0, awaitRenewed),
		"await-pod":        positive(2, 2, awaitPod),
		"await-converged":  positive(0, 0, h.awaitConverged),
		"block":            positive(2, 2, h.clusterBlock),
	}
}

package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/test/kubelet"
)

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
podLogsDir: %s/logs
cgroupRoot: %s
cgroupDriver: cgroupfs
port: %d
healthzPort: 0
failSwapOn: false
failCgroupV1: false
makeIPTablesUtilChains: false
evictionHard: {memory.available: 50Mi}
tlsCertFile: %s
tlsPrivateKeyFile: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
`

const (
	nodeName = "docker"
	podName  = "web"
)

// member is a node of a cluster: the upstream kubelet, with the shim's program as its endpoint.
type member struct {
	*program
	cluster *kubeapitest.Cluster
	space   string // namespace of the pod
	pods    typedcorev1.PodInterface
	client  kubernetes.Interface
	options kubelet.Options
	kubelet *kubelet.Kubelet
}

// newMember starts a control plane, a dockerd, the shim's program and the kubelet.
func newMember(t *testing.T) *member {
	t.Helper()
	m := &member{program: newProgram(t), cluster: kubeapitest.Start(t, kubeapitest.Options{})}
	m.client, m.space = m.cluster.Client(), m.cluster.Namespace()
	m.pods = m.client.CoreV1().Pods(m.space)
	address, err := kubelet.HostAddress()
	if err != nil {
		t.Fatal(err)
	}
	cert, key := m.cluster.ServingCertificate(nodeName, address, nodeName)
	config := fmt.Sprintf(kubeletConfig, m.socket, m.dir, m.daemon.Cgroup(), freePort(t, address), cert, key,
		m.cluster.CA())
	m.options = kubelet.Options{Program: m.cluster.Program(), Config: filepath.Join(m.dir, "kubelet.yaml"),
		CgroupRoot: m.daemon.Cgroup(), Kubeconfig: m.cluster.NodeKubeconfig(nodeName),
		Root: filepath.Join(m.dir, "kubelet"), Plugins: filepath.Join(m.dir, "plugins"), Node: nodeName,
		Address: address, Log: t.Output()}
	if err := os.WriteFile(m.options.Config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	m.startKubelet(t)
	t.Cleanup(func() {
		m.kubelet.End(unix.SIGKILL)
		_ = unix.Unmount(m.options.Root, 0) // a kubelet mounts its root directory on itself
		m.removeAll(t)
	})
	return m
}

// removeAll removes all sandboxes. A kubelet leaves ended ones for a minute, and a failed test also running ones.
func (m *member) removeAll(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	all, err := m.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	for _, s := range all.GetItems() {
		_, stopped := m.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.Id})
		_, removed := m.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id})
		err = errors.Join(err, stopped, removed)
	}
	if err != nil {
		t.Error(err)
	}
}

// freePort returns a port of an address. It is below those that the kernel gives out, so that no connection has it by
// the time the kubelet listens.
func freePort(t *testing.T, address string) int {
	t.Helper()
	for port := 19300; port < 19400; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// startKubelet starts the kubelet, and waits until it has reported that its node is ready.
func (m *member) startKubelet(t *testing.T) {
	t.Helper()
	began := time.Now().Truncate(time.Second)
	var err error
	if m.kubelet, err = kubelet.Start(m.options); err != nil {
		t.Fatal(err)
	}
	m.eventually(t, "the kubelet's node is ready", func() bool {
		node, err := m.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(began)
			}
		}
		return false
	})
}

// createPod makes the pod on the node: a server, and a container that ends when it has a file /tmp/end.
func (m *member) createPod(t *testing.T) {
	t.Helper()
	container := func(name string, args ...string) corev1.Container {
		return corev1.Container{Name: name, Image: workload, ImagePullPolicy: corev1.PullNever, Args: args}
	}
	_, err := m.pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName},
		Spec: corev1.PodSpec{NodeName: nodeName, AutomountServiceAccountToken: ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{container("app", "print", "ready", "then", "serve"),
				container("ends", "until", "/end", "then", "exit", "3")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitPod waits for a state of the pod in the API server, and returns the pod.
func (m *member) awaitPod(t *testing.T, what string, condition func(*corev1.Pod) bool) (pod *corev1.Pod) {
	t.Helper()
	m.eventually(t, what, func() bool {
		var err error
		pod, err = m.pods.Get(t.Context(), podName, metav1.GetOptions{})
		return err == nil && condition(pod)
	})
	return pod
}

// ready says whether all containers of the pod run, the second one after a number of restarts.
func ready(restarts int32) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return pod.Status.ContainerStatuses[1].RestartCount == restarts
			}
		}
		return false
	}
}

// get requests a path from the pod's server with a header "Mark", and returns the answer.
func get(t *testing.T, address, path, mark string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Mark", mark)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // it is only read
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("GET %s: %s, %v", path, answer.Status, err)
	}
	return string(text)
}

// forwarded requests a path through "kubectl port-forward".
func (m *member) forwarded(t *testing.T, path string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	cmd := m.cluster.KubectlCommand(ctx, "port-forward", "-n", m.space, "--address", "127.0.0.1", "pod/"+podName,
		":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		_ = cmd.Wait() // the error says that the signal ended it
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(line, "Forwarding from ")
	if err != nil || !ok {
		t.Fatalf("port-forward: %q, %v", line, err)
	}
	address, _, _ = strings.Cut(address, " ")
	return get(t, address, path, "")
}

// works checks the pod's logs, exec and port-forward with kubectl. The log of the server has some marks, each once.
func (m *member) works(t *testing.T, marks ...string) {
	t.Helper()
	m.eventually(t, fmt.Sprintf("the log has %q", marks), func() bool {
		log, err := m.cluster.KubectlCommand(t.Context(), "logs", "-n", m.space, podName, "-c", "app").Output()
		for _, mark := range append(marks, "ready") {
			if strings.Count(string(log), mark) != 1 {
				return false
			}
		}
		return err == nil // a kubelet that has just started does not know the pod yet
	})
	got := m.cluster.Kubectl("exec", "-n", m.space, podName, "-c", "app", "--", "/workload", "print", "within")
	if got != "within\n" {
		t.Errorf("exec: %q", got)
	}
	if got = m.forwarded(t, "/"); !strings.Contains(got, podName) {
		t.Errorf("port-forward: %q", got)
	}
}

// awaitUsage waits until the kubelet's summary has the usage of the pod's containers, with their writable layers.
func (m *member) awaitUsage(t *testing.T) {
	t.Helper()
	m.eventually(t, "the summary has the usage of the containers", func() bool {
		text, err := m.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + nodeName +
			"/proxy/stats/summary").DoRaw(t.Context())
		if err != nil {
			return false
		}
		var summary statsapi.Summary
		if err := json.Unmarshal(text, &summary); err != nil {
			t.Fatal(err)
		}
		measured := 0
		for _, pod := range summary.Pods {
			for _, c := range pod.Containers {
				if c.Memory != nil && ptr.Deref(c.Memory.WorkingSetBytes, 0) > 0 && c.Rootfs != nil &&
					c.Rootfs.UsedBytes != nil {
					measured++
				}
			}
		}
		return measured == 2
	})
}

// The upstream kubelet runs a pod on berth docker-shim, and reports its usage. The pod runs on while the shim or the
// kubelet or both are killed, and its log has what it writes meanwhile. Afterwards the kubelet restarts its containers
// and ends the pod.
func TestKubeletOnShim(t *testing.T) {
	m := newMember(t)
	m.createPod(t)
	before := m.awaitPod(t, "the pod is ready", ready(0))
	m.works(t)
	if image := before.Status.ContainerStatuses[0].Image; image != workload {
		t.Errorf("the status has the image %s", image)
	}

	m.awaitUsage(t)
	shim, node := func() { m.kill(t) }, func() { m.kubelet.End(unix.SIGKILL) }
	var marks []string
	for _, fault := range []struct {
		mark       string
		end, start []func()
	}{
		{"without-shim", []func(){shim}, []func(){func() { m.launch(t) }}},
		{"without-kubelet", []func(){node}, []func(){func() { m.startKubelet(t) }}},
		{"without-both", []func(){shim, node},
			[]func(){func() { m.launch(t) }, func() { m.startKubelet(t) }}},
	} {
		for _, end := range fault.end {
			end()
		}
		get(t, net.JoinHostPort(before.Status.PodIP, "8080"), "/print", fault.mark)
		for _, start := range fault.start {
			start()
		}
		marks = append(marks, fault.mark)
		m.works(t, marks...)
		after := m.awaitPod(t, "the pod is ready", ready(0))
		if diff := cmp.Diff(before.Status.ContainerStatuses, after.Status.ContainerStatuses); diff != "" ||
			after.Status.PodIP != before.Status.PodIP {
			t.Errorf("%s: address %s, before %s; containers: %s", fault.mark, after.Status.PodIP,
				before.Status.PodIP, diff)
		}
	}

	m.cluster.Kubectl("exec", "-n", m.space, podName, "-c", "ends", "--", "/workload", "write", "/end", "now")
	restarted := m.awaitPod(t, "the container has restarted", ready(1)).Status.ContainerStatuses[1]
	if ended := restarted.LastTerminationState.Terminated; ended == nil || ended.ExitCode != 3 {
		t.Errorf("the end of the container: %+v", restarted.LastTerminationState)
	}
	m.deletePod(t)
}

// deletePod deletes the pod, and checks that nothing of it runs then.
func (m *member) deletePod(t *testing.T) {
	t.Helper()
	if err := m.pods.Delete(t.Context(), podName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.eventually(t, "the pod is deleted", func() bool {
		_, err := m.pods.Get(t.Context(), podName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if left := m.leases(); len(left) > 0 {
		t.Errorf("addresses left: %q", left)
	}
}

package nodeobject

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/node/condition"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// reasons records the reasons of events.
type reasons struct {
	mu   sync.Mutex
	list []string
}

func (e *reasons) Event(_ corev1.ObjectReference, _, reason, _ string, _ ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, reason)
}

func (e *reasons) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// agent is a Node object, and the inputs of it.
type agent struct {
	*Object
	t        *testing.T
	admin    kubernetes.Interface
	name     string
	table    *condition.Table
	events   *reasons
	devices  atomic.Pointer[Devices]
	volumes  atomic.Pointer[[]corev1.UniqueVolumeName]
	ips      atomic.Pointer[[]netip.Addr]
	computed atomic.Int64 // how often the status was computed
	stop     func()
}

// inputs has the facts that the test has set.
type inputs struct{ *agent }

func (i inputs) Runtime() Runtime { return Runtime{} }

func (i inputs) IPs() []netip.Addr {
	if ips := i.ips.Load(); ips != nil {
		return *ips
	}
	return i.o.Config.Machine.IPs
}

func (i inputs) Devices() Devices {
	if d := i.devices.Load(); d != nil {
		return *d
	}
	return Devices{}
}

func (i inputs) VolumesInUse() ([]corev1.UniqueVolumeName, bool) {
	if v := i.volumes.Load(); v != nil {
		return *v, true
	}
	return nil, false
}

func (i inputs) Images(context.Context) ([]corev1.ContainerImage, error) {
	i.computed.Add(1)
	return nil, nil
}

func start(t *testing.T, c *kubeapitest.Cluster, name string, change func(*Options)) *agent {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.NodeConfig(name))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, admin: c.Client(), name: name, table: condition.New(), events: &reasons{}}
	config := facts().Config
	config.Machine.Name = name
	config.Machine.Labels = maps.Clone(config.Machine.Labels)
	config.Machine.Labels[corev1.LabelHostname] = name
	config.ProviderID = ""
	o := Options{
		Client: client, Watches: client, Config: config, Register: true, UpdateEvery: 10 * soon,
		Ref: corev1.ObjectReference{Kind: "Node", Name: name}, Events: a.events,
		Log:    slog.New(slog.NewTextHandler(t.Output(), nil)),
		Inputs: inputs{a}, Conditions: a.table, Latest: NewLatest(name),
	}
	if change != nil {
		change(&o)
	}
	a.Object = New(o)
	a.stop = sync.OnceFunc(looptest.Start(t, a.Run, nil))
	t.Cleanup(a.stop)
	return a
}

// get reads the object from the API server.
func (a *agent) get() *corev1.Node {
	a.t.Helper()
	n, err := a.admin.CoreV1().Nodes().Get(context.Background(), a.name, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

// await polls until problem is "".
func await(t *testing.T, within time.Duration, problem func() string) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		why := problem()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(why)
		}
	}
}

// soon is far less than the interval between two reports of an unchanged status.
const soon = time.Minute

func (a *agent) registered() *corev1.Node {
	a.t.Helper()
	select {
	case <-a.Received():
	case <-time.After(20 * time.Second):
		a.t.Fatal("the node is not registered")
	}
	return a.get()
}

func ready(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return fmt.Sprintf("%s: %s", c.Status, c.Message)
		}
	}
	return "none"
}

// awaitReady waits for the condition Ready at the API server.
func (a *agent) awaitReady(within time.Duration, want string) {
	a.t.Helper()
	a.registered()
	await(a.t, within, func() string {
		if got := ready(a.get()); got != want {
			return "Ready is " + got + ", not " + want
		}
		return ""
	})
}

func (a *agent) setWell() {
	a.table.Set(condition.Runtime, "")
	a.table.Set(condition.Network, "")
}

const isReady = "True: kubelet is posting ready status"

func TestRegisterAndFollowFacts(t *testing.T) {
	a := start(t, shared.Cluster(t), "facts", nil)
	n := a.registered()
	if diff := cmp.Diff(a.o.Config.Machine.Labels, n.Labels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"dedicated", "v1.36.3", "10.0.0.1,fd00::1,facts",
		"[RestartAllContainersOnContainerExits]"}, []string{
		n.Spec.Taints[0].Key, n.Status.NodeInfo.KubeletVersion,
		n.Status.Addresses[0].Address + "," + n.Status.Addresses[1].Address + "," + n.Status.Addresses[2].Address,
		fmt.Sprint(n.Status.DeclaredFeatures),
	}); diff != "" {
		t.Error(diff)
	}
	a.setWell()
	a.awaitReady(soon, isReady)
	a.table.Set(condition.Shutdown, "node is shutting down")
	a.awaitReady(soon, "False: node is shutting down")
	a.table.Set(condition.Shutdown, "")
	a.awaitReady(soon, isReady)

	a.devices.Store(&Devices{Capacity: list("example.com/gpu", "2"), Allocatable: list("example.com/gpu", "1")})
	a.volumes.Store(&[]corev1.UniqueVolumeName{"kubernetes.io/csi/d^v"})
	a.UpdateSoon()
	await(t, soon, func() string {
		n := a.get()
		have, may := n.Status.Capacity["example.com/gpu"], n.Status.Allocatable["example.com/gpu"]
		if have.Value() != 2 || may.Value() != 1 || len(n.Status.VolumesInUse) != 1 {
			return fmt.Sprintf("there are %s devices, %s of them allocatable, and volumes %v", &have, &may,
				n.Status.VolumesInUse)
		}
		// The server has stored the status before its response arrives.
		return cmp.Diff([]corev1.UniqueVolumeName{"kubernetes.io/csi/d^v"}, a.Node().Status.VolumesInUse)
	})
	if events := a.events.all(); !slices.Contains(events, "NodeReady") || !slices.Contains(events, "NodeNotReady") ||
		!slices.Contains(events, "NodeHasSufficientMemory") {
		t.Errorf("events are %v", events)
	}
}

// The agent sees what the administrator writes to the object, and keeps it across a restart.
func TestAnExistingObjectKeepsWhatOthersWrote(t *testing.T) {
	c := shared.Cluster(t)
	a := start(t, c, "there", nil)
	a.registered()
	patch := `{"metadata":{"labels":{"team":"a","kubernetes.io/os":"plan9"}},"spec":{"unschedulable":true,` +
		`"taints":[{"key":"mine","effect":"NoExecute"}]}}`
	if _, err := a.admin.CoreV1().Nodes().Patch(t.Context(), a.name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, soon, func() string {
		if n := a.Node(); n.Labels["team"] != "a" || !n.Spec.Unschedulable || n.Spec.Taints[0].Key != "mine" {
			return fmt.Sprintf("the received node is %v", n)
		}
		return ""
	})
	if events := a.events.all(); !slices.Contains(events, "NodeNotSchedulable") {
		t.Errorf("events are %v", events)
	}
	a.stop()

	a = start(t, c, "there", func(o *Options) {
		o.Config.Machine.Info.BootID = "another"
		o.Config.Machine.Labels["disk"] = "hdd"
		o.Config.Machine.IPs = o.Config.Machine.IPs[1:]
	})
	a.setWell()
	a.awaitReady(soon, isReady)
	n := a.get()
	got := []string{n.Labels["team"], n.Labels[corev1.LabelOSStable], n.Labels["disk"], n.Spec.Taints[0].Key,
		n.Status.NodeInfo.BootID, fmt.Sprint(n.Status.Addresses)}
	if diff := cmp.Diff([]string{"a", "linux", "ssd", "mine", "another", "[{InternalIP fd00::1} {Hostname there}]"},
		got); diff != "" {
		t.Error(diff)
	}
	if events := a.events.all(); !slices.Contains(events, "Rebooted") {
		t.Errorf("events are %v", events)
	}
}

// Confirm closes Changed after the answer, even if the object is
// unchanged.
func TestConfirm(t *testing.T) {
	c := shared.Cluster(t)
	a := start(t, c, "confirmed", nil)
	a.registered()
	if !a.AsOf().IsZero() {
		t.Errorf("confirmed at %v before Confirm was called", a.AsOf())
	}
	doubted := time.Now()
	for !a.AsOf().After(doubted) {
		changed := a.Changed()
		a.Confirm()
		select {
		case <-changed:
		case <-time.After(soon):
			t.Fatal("no request was sent to the API server")
		}
	}
}

// A machine that moves to another network reports its new address.
func TestAddressesChange(t *testing.T) {
	c := shared.Cluster(t)
	a := start(t, c, "moving", func(o *Options) {
		o.Inputs.(inputs).ips.Store(&[]netip.Addr{netip.MustParseAddr("192.0.2.1")})
	})
	a.registered()
	for _, want := range []string{"192.0.2.1", "198.51.100.1"} {
		a.ips.Store(&[]netip.Addr{netip.MustParseAddr(want)})
		a.UpdateSoon()
		await(t, soon, func() string {
			if got := a.get().Status.Addresses; got[0].Address != want {
				return fmt.Sprintf("the addresses are %v", got)
			}
			return ""
		})
	}
}

func TestADeletedObjectIsRegisteredWhenTheAgentStarts(t *testing.T) {
	c := shared.Cluster(t)
	a := start(t, c, "deleted", func(o *Options) { o.UpdateEvery = 50 * time.Millisecond })
	a.registered()
	if err := a.admin.CoreV1().Nodes().Delete(t.Context(), a.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, soon, func() string {
		if _, gone, _ := a.last(); !gone {
			return "the end of the object is not noticed"
		}
		return ""
	})
	a.table.Set(condition.Storage, "x")
	a.stop()
	if _, err := a.admin.CoreV1().Nodes().Get(t.Context(), a.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object is there again: %v", err)
	}
	if a.Node().Name != a.name {
		t.Error("what was known of the node is forgotten")
	}
	start(t, c, "deleted", nil).registered()
}

func TestRegisterNodeFalse(t *testing.T) {
	c := shared.Cluster(t)
	a := start(t, c, "other", func(o *Options) { o.Register = false })
	a.setWell()
	if n := a.Node(); n.Labels[corev1.LabelHostname] != "other" {
		t.Errorf("before anything is received the node is %v", n)
	}
	if _, err := a.admin.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.awaitReady(soon, isReady)
}

// Nothing is sent while nothing changes, until the next report is due.
func TestFrequencies(t *testing.T) {
	c := shared.Cluster(t)
	a := start(t, c, "quiet", func(o *Options) { o.UpdateEvery = 50 * time.Millisecond })
	a.registered()
	a.setWell()
	a.awaitReady(soon, isReady)
	before, looked := a.get().ResourceVersion, a.computed.Load()
	await(t, soon, func() string {
		if n := a.computed.Load() - looked; n < 10 {
			return fmt.Sprintf("the status was computed %d times", n)
		}
		return ""
	})
	if after := a.get().ResourceVersion; after != before {
		t.Errorf("the object went from version %s to %s", before, after)
	}
	a.stop()

	b := start(t, c, "quiet", func(o *Options) { o.UpdateEvery, o.ReportEvery = 50*time.Millisecond, time.Second })
	b.setWell()
	b.awaitReady(soon, isReady)
	first := b.get()
	await(t, soon, func() string {
		if now := b.get(); !now.Status.Conditions[0].LastHeartbeatTime.After(
			first.Status.Conditions[0].LastHeartbeatTime.Add(2 * time.Second)) {
			return "no report comes"
		}
		return ""
	})
}

// A node may not change another node's object, or set labels that are reserved for others.
func TestANodeMayChangeOnlyItsOwnObject(t *testing.T) {
	a := start(t, shared.Cluster(t), "strict", func(o *Options) {
		o.Config.Machine.Labels["node-restriction.kubernetes.io/x"] = "y"
		o.Register = false
	})
	err := a.tryRegister(t.Context())
	if err == nil ||
		!strings.Contains(err.Error(), "is not allowed to set the following labels: node-restriction.kubernetes.io/x") {
		t.Errorf("registering says %v", err)
	}
}

func TestTheAgentStartsBeforeTheAPIServer(t *testing.T) {
	c := shared.Cluster(t)
	c.Disconnect()
	t.Cleanup(c.Connect)
	a := start(t, c, "early", nil)
	a.setWell()
	if n := a.Node(); n.Labels["disk"] != "ssd" || n.Spec.Taints[0].Key != "dedicated" || ready(n) != isReady {
		t.Errorf("the node is %v", n)
	}
	c.Connect()
	a.awaitReady(soon, isReady)
}

func TestTheAPIServerGoesAndComesBack(t *testing.T) {
	c := shared.Cluster(t)
	a := start(t, c, "away", nil)
	a.setWell()
	a.awaitReady(soon, isReady)
	c.KillAPIServer()
	a.table.Set(condition.DiskPressure, "full")
	a.table.Set(condition.Storage, "CSINode is not yet initialized")
	if got := ready(a.Node()); got != isReady {
		t.Errorf("while the API server is away the node is %s", got)
	}
	c.StartAPIServer()
	a.awaitReady(soon, "False: CSINode is not yet initialized")
	if n := a.get(); n.Status.Conditions[1].Status != corev1.ConditionTrue {
		t.Errorf("disk pressure is %v", n.Status.Conditions[1])
	}
}

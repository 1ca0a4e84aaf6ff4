package nodeobject

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/config/gate"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/condition"
)

var (
	now     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	earlier = now.Add(-time.Hour)
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func facts() Facts {
	return Facts{
		Config: Config{
			Machine: node.Facts{
				Name: "n1",
				Capacity: list("cpu", "2", "memory", "4Gi", "ephemeral-storage", "10Gi", "pods", "110",
					"hugepages-2Mi", "64Mi"),
				Allocatable: list("cpu", "1900m", "memory", "3Gi", "ephemeral-storage", "9Gi", "pods", "110",
					"hugepages-2Mi", "64Mi"),
				Labels: map[string]string{
					corev1.LabelHostname: "n1", corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
					"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", "disk": "ssd",
				},
				Info: corev1.NodeSystemInfo{
					MachineID: "m", SystemUUID: "s", BootID: "b", KernelVersion: "6.1", OSImage: "Debian",
					OperatingSystem: "linux", Architecture: "amd64",
					Swap: &corev1.NodeSwapStatus{Capacity: ptr.To[int64](1 << 30)},
				},
				IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
			},
			Taints:           []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}},
			ProviderID:       "cloud://n1",
			ControllerAttach: true,
			Port:             10250,
			Version:          "v1.36.3",
			DeclaredFeatures: []string{"RestartAllContainersOnContainerExits"},
		},
		Devices:      Devices{Capacity: list("example.com/gpu", "2"), Allocatable: list("example.com/gpu", "1")},
		Runtime:      Runtime{Version: "containerd://2.1.4", Handlers: []corev1.NodeRuntimeHandler{{Name: "runc"}}},
		Images:       []corev1.ContainerImage{{Names: []string{"a:1"}, SizeBytes: 7}},
		Conditions:   condition.Facts{condition.Runtime: {Well: now}, condition.Network: {Well: now}},
		VolumesInUse: []corev1.UniqueVolumeName{"v2", "v1", "v2"},
		VolumesKnown: true,
	}
}

func conditions(since time.Time) []corev1.NodeCondition {
	one := func(of corev1.NodeConditionType, status corev1.ConditionStatus,
		reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: of, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(since)}
	}
	return []corev1.NodeCondition{
		one(corev1.NodeMemoryPressure, "False", "KubeletHasSufficientMemory",
			"kubelet has sufficient memory available"),
		one(corev1.NodeDiskPressure, "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		one(corev1.NodePIDPressure, "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		one(corev1.NodeReady, "True", "KubeletReady", "kubelet is posting ready status"),
	}
}

// built is the object that Build returns for facts().
func built() *corev1.Node {
	f := facts()
	info := f.Config.Machine.Info
	info.KubeletVersion, info.ContainerRuntimeVersion = "v1.36.3", "containerd://2.1.4"
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: f.Config.Machine.Labels,
			Annotations: map[string]string{AttachDetach: "true"}},
		Spec: corev1.NodeSpec{ProviderID: "cloud://n1", Taints: f.Config.Taints},
		Status: corev1.NodeStatus{
			Capacity: list("cpu", "2", "memory", "4Gi", "ephemeral-storage", "10Gi", "pods", "110", "hugepages-2Mi",
				"64Mi", "example.com/gpu", "2"),
			Allocatable: list("cpu", "1900m", "memory", "3Gi", "ephemeral-storage", "9Gi", "pods", "110",
				"hugepages-2Mi", "64Mi",
				"example.com/gpu", "1"),
			Conditions: conditions(now),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
				{Type: corev1.NodeHostName, Address: "n1"},
			},
			DaemonEndpoints:  corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo:         info,
			Images:           f.Images,
			VolumesInUse:     []corev1.UniqueVolumeName{"v1", "v2"},
			RuntimeHandlers:  f.Runtime.Handlers,
			DeclaredFeatures: f.Config.DeclaredFeatures,
		},
	}
}

func TestBuild(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts)
		want   func(*corev1.Node)
	}{
		"whole": {func(*Facts) {}, func(*corev1.Node) {}},
		"external cloud": {
			func(f *Facts) { f.Config.ExternalCloud = true },
			func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints,
					corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true",
						Effect: "NoSchedule"})
				n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}}
			}},
		"external cloud with node IPs": {
			func(f *Facts) { f.Config.ExternalCloud, f.Config.AskedIPs = true, f.Config.Machine.IPs },
			func(n *corev1.Node) {
				n.Annotations["alpha.kubernetes.io/provided-node-ip"] = "10.0.0.1,fd00::1"
				n.Spec.Taints = append(n.Spec.Taints,
					corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true",
						Effect: "NoSchedule"})
			}},
		"attaching by the node, volumes not known": {
			func(f *Facts) { f.Config.ControllerAttach, f.VolumesKnown = false, false },
			func(n *corev1.Node) { n.Annotations, n.Status.VolumesInUse = nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			f, want := facts(), built()
			test.change(&f)
			test.want(want)
			if diff := cmp.Diff(want, Build(f, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An existing object keeps what others wrote. The node's own fields get their current values.
func TestReconcile(t *testing.T) {
	there := built()
	there.Labels = map[string]string{corev1.LabelHostname: "old", "disk": "hdd", "team": "a"}
	there.Annotations = map[string]string{"note": "x"}
	there.Spec = corev1.NodeSpec{Taints: []corev1.Taint{{Key: "mine"}}, PodCIDR: "10.1.0.0/24", Unschedulable: true}
	there.Status.Capacity = list("cpu", "1", "hugepages-1Gi", "1Gi", "example.com/gpu", "4", "example.com/dongle", "4",
		"scarce", "1")
	there.Status.Allocatable = list("cpu", "1", "hugepages-1Gi", "1Gi", "example.com/gpu", "4", "example.com/gone", "1")
	foreign := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: "False", Reason: "Routed"}
	there.Status.Conditions = append([]corev1.NodeCondition{foreign}, conditions(earlier)...)
	there.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v1", DevicePath: "/dev/b"}}

	f := facts()
	f.Config.FreshDevices = true
	want := built()
	want.Labels = map[string]string{"disk": "hdd", "team": "a", corev1.LabelHostname: "n1",
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64", "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64"}
	want.Annotations = map[string]string{"note": "x", AttachDetach: "true"}
	want.Spec = there.Spec
	want.Status.Capacity["example.com/dongle"], want.Status.Allocatable["example.com/dongle"] = resource.MustParse("0"),
		resource.MustParse("0")
	want.Status.Capacity["scarce"], want.Status.Allocatable["scarce"] = resource.MustParse("1"), resource.MustParse("1")
	want.Status.Conditions = append([]corev1.NodeCondition{foreign}, conditions(earlier)...)
	want.Status.VolumesAttached = there.Status.VolumesAttached
	if diff := cmp.Diff(want, Reconcile(there, f, now)); diff != "" {
		t.Error(diff)
	}

	f.Config.ControllerAttach, f.Config.RuntimeHandlers = false, "[]"
	changed := Reconcile(want, f, now)
	if diff := cmp.Diff(map[string]string{"note": "x", RuntimeHandlers: "[]"}, changed.Annotations); diff != "" {
		t.Errorf("annotations with a handler and without attaching by the controller (-want +got):\n%s", diff)
	}
	f.Config.RuntimeHandlers = ""
	if diff := cmp.Diff(map[string]string{"note": "x"}, Reconcile(changed, f, now).Annotations); diff != "" {
		t.Errorf("annotations without handlers (-want +got):\n%s", diff)
	}
}

func TestChanged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts)
		want   bool
	}{
		"nothing":     {func(*Facts) {}, false},
		"condition":   {func(f *Facts) { f.Conditions[condition.Shutdown] = condition.Fact{Problem: "x"} }, true},
		"devices":     {func(f *Facts) { f.Devices = Devices{Capacity: list("example.com/gpu", "0")} }, true},
		"volumes":     {func(f *Facts) { f.VolumesInUse = nil }, true},
		"images":      {func(f *Facts) { f.Images = nil }, true},
		"same volume": {func(f *Facts) { f.VolumesInUse = []corev1.UniqueVolumeName{"v1", "v2"} }, false},
	} {
		f := facts()
		test.change(&f)
		later := now.Add(20 * time.Second)
		if got := Changed(built(), Update(built(), f, later)); got != test.want {
			t.Errorf("%s: changed is %v", name, got)
		}
	}
}

// The patch applied to the old object gives the new one, except for its spec.
func TestPatch(t *testing.T) {
	was := built()
	f := facts()
	f.Config.Machine.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")}
	f.Devices = Devices{}
	f.Conditions[condition.DiskPressure] = condition.Fact{Problem: "full"}
	next := Update(was, f, now)
	next.Spec.PodCIDR = "never sent"
	patch, err := Patch(was, next)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Node
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	next.Spec = was.Spec
	if diff := cmp.Diff(next, &got); diff != "" {
		t.Error(diff)
	}
	if patch, err = Patch(was, was); err != nil || string(patch) != "{}" {
		t.Errorf("the patch of no change is %s, %v", patch, err)
	}
}

func TestImages(t *testing.T) {
	all := []*runtimeapi.Image{
		{Id: "small", Size: 1, RepoTags: []string{"s:1"}},
		{Id: "b", Size: 5, RepoTags: []string{"b:1", "b:2", "b:3"}, RepoDigests: []string{"b@1", "b@2", "b@3"}},
		{Id: "a", Size: 5},
	}
	want := []corev1.ContainerImage{{Names: []string{}, SizeBytes: 5},
		{Names: []string{"b@1", "b@2", "b@3", "b:1", "b:2"}, SizeBytes: 5}}
	if diff := cmp.Diff(want, Images(all, 2), cmp.Transformer("names", func(s []string) string {
		b, _ := json.Marshal(append([]string{}, s...))
		return string(b)
	})); diff != "" {
		t.Error(diff)
	}
	if got := len(Images(all, -1)); got != 3 {
		t.Errorf("without a limit there are %d images", got)
	}
}

func TestRuntimeOf(t *testing.T) {
	for name, test := range map[string]struct {
		version *runtimeapi.VersionResponse
		status  *runtimeapi.StatusResponse
		want    Runtime
	}{
		"nothing known": {nil, nil, Runtime{Version: "unknown://Unknown"}},
		"all": {
			&runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.1.4"},
			&runtimeapi.StatusResponse{
				RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc",
					Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {}},
				Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
			},
			Runtime{
				Version: "containerd://v2.1.4",
				Handlers: []corev1.NodeRuntimeHandler{
					{Name: "", Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: ptr.To(false),
						UserNamespaces: ptr.To(false)}},
					{Name: "runc",
						Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: ptr.To(false),
							UserNamespaces: ptr.To(true)}},
				},
				Features: &corev1.NodeFeatures{SupplementalGroupsPolicy: ptr.To(true)},
			}},
	} {
		if diff := cmp.Diff(test.want, RuntimeOf(test.version, test.status)); diff != "" {
			t.Error(name, diff)
		}
	}
}

func TestDeclared(t *testing.T) {
	const sockets, whole, initial, restart = "ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling",
		"InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"
	for name, test := range map[string]struct {
		off     gate.Disabled
		sockets bool
		want    []string
	}{
		"all":         {gate.Disabled{}, true, []string{sockets, whole, initial, restart}},
		"no server":   {gate.Disabled{}, false, []string{whole, initial, restart}},
		"gate is off": {gate.Disabled{DeclaredFeatures: true}, true, nil},
		"WebSockets": {gate.Disabled{Server: gate.Server{WebSockets: true}}, true,
			[]string{whole, initial, restart}},
		"resize of pods": {gate.Disabled{Resources: gate.Resources{ResizePod: true}}, true,
			[]string{sockets, initial, restart}},
		"pod-level resources": {gate.Disabled{Resources: gate.Resources{PodLevel: true}}, true,
			[]string{sockets, initial, restart}},
		"resize of init containers": {gate.Disabled{Resources: gate.Resources{ResizeInit: true}}, true,
			[]string{sockets, whole, restart}},
		"restart of all": {gate.Disabled{Fields: gate.Fields{RestartAll: true}}, true,
			[]string{sockets, whole, initial}},
		"restart rules": {gate.Disabled{Fields: gate.Fields{RestartRules: true}}, true,
			[]string{sockets, whole, initial}},
	} {
		if diff := cmp.Diff(test.want, Declared(test.off, test.sockets)); diff != "" {
			t.Error(name, diff)
		}
	}
}

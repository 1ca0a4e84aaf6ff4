package admission

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = quantity.MustParse(pairs[i+1])
	}
	return out
}

func facts() node.Facts {
	return node.Facts{
		Name: "here", Labels: map[string]string{"kubernetes.io/os": "linux", "zone": "a"},
		Allocatable: list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "10Gi", "pods", "3", "hugepages-2Mi", "4Mi",
			"example.com/dongle", "1"),
		Info: corev1.NodeSystemInfo{KernelVersion: "6.1.0-31-amd64"},
	}
}

// other is an admitted pod of that name.
func other(t testing.TB, name, text string) PodInfo {
	p := spec(t, text)
	p.Name, p.UID = name, types.UID(name)
	return PodInfo{Pod: p}
}

func ending(o PodInfo, by time.Time) PodInfo {
	o.Terminating, o.EndsBy = true, by
	return o
}

// ruleTest asks one rule about one pod.
type ruleTest struct {
	spec     string
	admitted []PodInfo
	config   Config
	want     Answer
}

func testRule(t *testing.T, name string, tests map[string]ruleTest) {
	t.Helper()
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			in := In{Pod: spec(t, test.spec), Node: facts(), Admitted: test.admitted, Config: test.config}
			for _, r := range Rules() {
				if r.Name != name {
					continue
				}
				if d := cmp.Diff(test.want, r.Check(in)); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				return
			}
			t.Fatalf("there is no rule %q", name)
		})
	}
}

func TestOS(t *testing.T) {
	testRule(t, "os", map[string]ruleTest{
		"none asked": {spec: "{}"},
		"linux":      {spec: "{os: {name: linux}, nodeSelector: {kubernetes.io/os: linux}}"},
		"the field": {spec: "os: {name: windows}",
			want: reject(PodOSNotSupported, "Failed to admit pod as the OS field doesn't match node OS")},
	})
	p := spec(t, "{}")
	p.Labels = map[string]string{"kubernetes.io/os": "windows"}
	want := reject(PodOSSelectorNodeLabelDoesNotMatch,
		"Failed to admit pod as the `kubernetes.io/os` label doesn't match node label")
	if d := cmp.Diff(want, checkOS(In{Pod: p})); d != "" {
		t.Errorf("the label (-want +got):\n%s", d)
	}
}

func TestPodLevelResources(t *testing.T) {
	const asks = "{resources: {limits: {cpu: 1}}, containers: [{name: a, image: i}]}"
	off := Config{NoPodLevel: true}
	testRule(t, "podLevelResources", map[string]ruleTest{
		"supported": {spec: asks},
		"gate is off": {spec: asks, config: off,
			want: reject("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")},
		"asks nothing": {spec: "{}", config: off},
	})
}

func TestNodeName(t *testing.T) {
	testRule(t, "nodeName", map[string]ruleTest{
		"none": {spec: "{}"},
		"this": {spec: "nodeName: here"},
		"elsewhere": {spec: "nodeName: there",
			want: reject(NodeName,
				"Predicate NodeName failed: node(s) didn't match the requested node name (here is not there)")},
	})
}

func TestNodeAffinity(t *testing.T) {
	no := reject(NodeAffinity, "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	required := func(expression string) string {
		return "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" +
			expression + "]}}}"
	}
	testRule(t, "nodeAffinity", map[string]ruleTest{
		"none":                {spec: "{}"},
		"another OS":          {spec: "nodeSelector: {kubernetes.io/os: windows}", want: no},
		"selector":            {spec: "nodeSelector: {zone: a}"},
		"another selector":    {spec: "nodeSelector: {zone: b}", want: no},
		"a label that is not": {spec: "nodeSelector: {rack: '1'}", want: no},
		"not confirmed": {spec: "nodeSelector: {rack: '1'}", config: Config{NodeOld: true},
			want: Answer{Verdict: NotYet, Reason: NodeAffinity,
				Message: "waiting for the API server to confirm the labels of the node: those known are older than " +
					"the pod, which does not match them"}},
		"met by old labels": {spec: "nodeSelector: {zone: a}", config: Config{NodeOld: true}},
		"required":          {spec: required("{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}")},
		"required, one of two": {
			spec: required(
				"{matchExpressions: [{key: zone, operator: In, values: [c]}]}, {matchFields: [{key: metadata.name, " +
					"operator: In, values: [here]}]}")},
		"required, not met": {spec: required("{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}"),
			want: no},
		"required, nonsense": {spec: required("{matchExpressions: [{key: zone, operator: Near, values: [a]}]}"),
			want: reject(NodeAffinity,
				"Predicate NodeAffinity failed: the pod's node affinity cannot be read: "+
					"nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: \"Near\": supported "+
					"values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\"")},
		"preferred does not bind": {
			spec: "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, " +
				"preference: {matchExpressions: [{key: zone, operator: In, values: [b]}]}}]}}"},
	})
}

func TestName(t *testing.T) {
	at := time.Unix(1000, 0)
	same := func() PodInfo {
		o := other(t, "app", "{}")
		o.Pod.UID = "older"
		return o
	}
	elsewhere := same()
	elsewhere.Pod.Namespace = "prod"
	testRule(t, "name", map[string]ruleTest{
		"alone":                {spec: "{}"},
		"itself":               {spec: "{}", admitted: []PodInfo{other(t, "app", "{}")}},
		"in another namespace": {spec: "{}", admitted: []PodInfo{elsewhere}},
		"the one before, ending": {spec: "{}", admitted: []PodInfo{ending(same(), at)},
			want: Answer{Verdict: NotYet, Reason: SameName, Until: at,
				Message: "waiting for pod default/app to end: older has the same name"}},
		"the one before, not ended": {spec: "{}", admitted: []PodInfo{same()},
			want: Answer{Verdict: NotYet, Reason: SameName,
				Message: "waiting for pod default/app to end: older has the same name"}},
	})
}

func port(text string) string {
	return "containers: [{name: c, ports: [{containerPort: 1, " + text + "}]}]"
}

func TestHostPorts(t *testing.T) {
	const taken = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports "
	web := []PodInfo{other(t, "web", port("hostPort: 80, protocol: TCP"))}
	local := []PodInfo{other(t, "web", port("hostPort: 80, hostIP: 127.0.0.1"))}
	testRule(t, "hostPorts", map[string]ruleTest{
		"no host port":     {spec: port("protocol: TCP"), admitted: web},
		"another port":     {spec: port("hostPort: 81"), admitted: web},
		"another protocol": {spec: port("hostPort: 80, protocol: UDP"), admitted: web},
		"the same": {spec: port("hostPort: 80"), admitted: web,
			want: reject(NodePorts, taken+"(80/TCP is used by pod default/web)")},
		"one address of all": {spec: port("hostPort: 80, hostIP: 127.0.0.1"), admitted: web,
			want: reject(NodePorts, taken+"(127.0.0.1:80/TCP is used by pod default/web)")},
		"all addresses and one": {spec: port("hostPort: 80, hostIP: 0.0.0.0"), admitted: local,
			want: reject(NodePorts, taken+"(80/TCP is used by pod default/web)")},
		"all addresses of IPv6": {spec: port("hostPort: 80, hostIP: '::'"), admitted: local,
			want: reject(NodePorts, taken+"(80/TCP is used by pod default/web)")},
		"the same address": {spec: port("hostPort: 80, hostIP: '::ffff:127.0.0.1'"), admitted: local,
			want: reject(NodePorts, taken+"(127.0.0.1:80/TCP is used by pod default/web)")},
		"another address": {spec: port("hostPort: 80, hostIP: 192.0.2.1"), admitted: local},
		"its own":         {spec: port("hostPort: 80"), admitted: []PodInfo{other(t, "app", port("hostPort: 80"))}},
		"an init container's": {spec: "initContainers: [{name: c, ports: [{containerPort: 1, hostPort: 80}]}]",
			admitted: web},
		"a sidecar's": {
			spec:     "initContainers: [{name: c, restartPolicy: Always, ports: [{containerPort: 1, hostPort: 80}]}]",
			admitted: web, want: reject(NodePorts, taken+"(80/TCP is used by pod default/web)")},
		"of a pod that ends": {spec: port("hostPort: 80"),
			admitted: []PodInfo{ending(web[0], time.Unix(7, 0))},
			want: Answer{Verdict: NotYet, Reason: NodePorts, Until: time.Unix(7, 0),
				Message: "waiting for pod default/web to end: host port 80/TCP"}},
		"of one that ends and of one that does not": {spec: port("hostPort: 80"),
			admitted: []PodInfo{ending(local[0], time.Time{}), other(t, "db", port("hostPort: 80, hostIP: 192.0.2.1"))},
			want:     reject(NodePorts, taken+"(80/TCP is used by pod default/db)")},
	})
}

func requests(text string) string {
	return "containers: [{name: c, resources: {requests: {" + text + "}}}]"
}

func TestResources(t *testing.T) {
	at := time.Unix(60, 0)
	one := other(t, "one", requests("cpu: 1500m, memory: 512Mi"))
	out := func(name, requested, used, capacity string) Answer {
		return reject("OutOf"+name, "Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s", name,
			requested, used, capacity)
	}
	testRule(t, "resources", map[string]ruleTest{
		"nothing asked":    {spec: "{}", admitted: []PodInfo{one}},
		"all that is left": {spec: requests("cpu: 500m, memory: 512Mi"), admitted: []PodInfo{one}},
		"CPU": {spec: requests("cpu: 501m"), admitted: []PodInfo{one},
			want: out("cpu", "501", "1500", "2000")},
		"memory": {spec: requests("memory: 513Mi"), admitted: []PodInfo{one},
			want: out("memory", "537919488", "536870912", "1073741824")},
		"both: the first": {spec: requests("memory: 2Gi, cpu: 3"), want: out("cpu", "3000", "0", "2000")},
		"storage": {spec: requests("ephemeral-storage: 11Gi"),
			want: out("ephemeral-storage", "11811160064", "0", "10737418240")},
		"huge pages": {spec: requests("hugepages-2Mi: 6Mi"),
			want: out("hugepages-2Mi", "6291456", "0", "4194304")},
		"huge pages of none": {spec: requests("hugepages-1Gi: 1Gi"),
			want: out("hugepages-1Gi", "1073741824", "0", "0")},
		"a device":    {spec: requests("example.com/dongle: 1")},
		"two devices": {spec: requests("example.com/dongle: 2"), want: out("example.com/dongle", "2", "0", "1")},
		"an unknown device": {spec: requests("nvidia.com/gpu: 1"), config: Config{Standalone: true},
			want: out("nvidia.com/gpu", "1", "0", "0")},
		"of a cluster": {spec: requests("nvidia.com/gpu: 1")},
		"the fourth pod": {spec: "{}",
			admitted: []PodInfo{other(t, "one", "{}"), other(t, "two", "{}"), other(t, "three", "{}")},
			want:     out("pods", "1", "3", "3")},
		"itself is not counted": {spec: requests("cpu: 2"),
			admitted: []PodInfo{other(t, "app", requests("cpu: 2"))}},
		"an init container beside the others": {spec: "initContainers: [{name: i, resources: {requests: {cpu: 3}}}]\n" +
			requests("cpu: 1"), want: out("cpu", "3000", "0", "2000")},
		"a sidecar adds": {
			spec: "initContainers: [{name: i, restartPolicy: Always, resources: {requests: {cpu: 1500m}}}]\n" +
				requests("cpu: 1"), want: out("cpu", "2500", "0", "2000")},
		"overhead adds": {spec: "overhead: {cpu: 1500m}\n" + requests("cpu: 1"), want: out("cpu", "2500", "0", "2000")},
		"pod-level": {spec: "resources: {requests: {cpu: 3}}\n" + requests("cpu: 1"),
			want: out("cpu", "3000", "0", "2000")},
		"held by a pod that ends": {spec: requests("cpu: 1"), admitted: []PodInfo{ending(one, at)},
			want: Answer{Verdict: NotYet, Reason: "OutOfcpu", Until: at,
				Message: "waiting for pod default/one to end: Node didn't have enough resource: cpu, requested: " +
					"1000, used: 1500, capacity: 2000"}},
		"held by two, one of which holds something else": {spec: requests("cpu: 1"),
			admitted: []PodInfo{ending(one, at), ending(other(t, "two", requests("memory: 1Mi")), at)},
			want: Answer{Verdict: NotYet, Reason: "OutOfcpu", Until: at,
				Message: "waiting for pod default/one to end: Node didn't have enough resource: cpu, requested: " +
					"1000, used: 1500, capacity: 2000"}},
		"two missing, until the last ends": {spec: requests("cpu: 2, memory: 1Gi"),
			admitted: []PodInfo{ending(one, at), ending(other(t, "two", requests("cpu: 100m")), at.Add(time.Second))},
			want: Answer{Verdict: NotYet, Reason: "OutOfcpu", Until: at.Add(time.Second),
				Message: "waiting for pods default/one, default/two to end: " +
					"Node didn't have enough resource: cpu, requested: 2000, used: 1600, capacity: 2000; Node didn't " +
					"have enough resource: memory, requested: 1073741824, used: 536870912, capacity: 1073741824"}},
		"more than what will be free": {spec: requests("cpu: 1"),
			admitted: []PodInfo{ending(other(t, "two", requests("cpu: 200m")), at), one},
			want:     out("cpu", "1000", "1700", "2000")},
		"a place that will be free": {spec: "{}",
			admitted: []PodInfo{other(t, "one", "{}"), other(t, "two", "{}"),
				ending(other(t, "three", "{}"), time.Time{})},
			want: Answer{Verdict: NotYet, Reason: "OutOfpods",
				Message: "waiting for pod default/three to end: Node didn't have enough resource: pods, requested: " +
					"1, used: 3, capacity: 3"}},
	})
}

func withSysctl(name string) string {
	return "securityContext: {sysctls: [{name: " + name + ", value: '1'}]}"
}

func TestSysctls(t *testing.T) {
	no := func(why string) Answer { return reject(SysctlForbidden, "forbidden sysctl: %s", why) }
	unsafe := Config{UnsafeSysctls: []string{"kernel.msg*", "net.core.somaxconn", "vm.swappiness",
		"net/ipv4/conf/eth0.1/forwarding"}}
	testRule(t, "sysctls", map[string]ruleTest{
		"none":               {spec: "{}"},
		"safe":               {spec: withSysctl("net.ipv4.ip_local_port_range")},
		"safe, with slashes": {spec: withSysctl("net/ipv4/tcp_rmem")},
		"safe, on the host's network": {spec: "hostNetwork: true\n" + withSysctl("net.ipv4.tcp_syncookies"),
			want: no(`"net.ipv4.tcp_syncookies" not allowed with host net enabled`)},
		"safe, with the host's IPC": {spec: "hostIPC: true\n" + withSysctl("kernel.shm_rmid_forced"),
			want: no(`"kernel.shm_rmid_forced" not allowed with host ipc enabled`)},
		"unsafe":                  {spec: withSysctl("kernel.msgmax"), want: no(`"kernel.msgmax" not allowlisted`)},
		"unsafe, allowed":         {spec: withSysctl("kernel.msgmax"), config: unsafe},
		"unsafe, allowed by name": {spec: withSysctl("net.core.somaxconn"), config: unsafe},
		"unsafe, a longer name": {spec: withSysctl("net.core.somaxconn2"), config: unsafe,
			want: no(`"net.core.somaxconn2" not allowlisted`)},
		"of a VLAN": {spec: withSysctl("net/ipv4/conf/eth0.1/forwarding"), config: unsafe},
		"allowed, but the host's": {spec: withSysctl("vm.swappiness"), config: unsafe,
			want: no(`"vm.swappiness" is not known to be namespaced`)},
	})
	old := In{Pod: spec(t, withSysctl("net.ipv4.tcp_rmem")), Node: facts()}
	old.Node.Info.KernelVersion = "4.9.337"
	if d := cmp.Diff(no(`"net.ipv4.tcp_rmem" not allowlisted: it needs Linux 4.15`), checkSysctls(old)); d != "" {
		t.Errorf("an old kernel (-want +got):\n%s", d)
	}
}

func TestAppArmor(t *testing.T) {
	const profile = "securityContext: {appArmorProfile: {type: RuntimeDefault}}"
	const text = `Cannot enforce AppArmor: AppArmor is not enabled on the host (container "c" asks for a profile)`
	no := reject(AppArmor, text)
	testRule(t, "apparmor", map[string]ruleTest{
		"none":          {spec: "containers: [{name: c}]"},
		"the pod's":     {spec: profile + "\ncontainers: [{name: c}]", want: no},
		"a container's": {spec: "containers: [{name: c, " + profile + "}]", want: no},
		"without a cluster": {spec: profile + "\ncontainers: [{name: c}]", config: Config{Standalone: true},
			want: block(AppArmor, text)},
		"unconfined": {spec: profile +
			"\ncontainers: [{name: c, securityContext: {appArmorProfile: {type: Unconfined}}}]"},
		"on a host that has it": {spec: profile + "\ncontainers: [{name: c}]", config: Config{AppArmor: true}},
	})
	p := spec(t, "containers: [{name: c}]")
	p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "localhost/mine"}
	if d := cmp.Diff(no, checkAppArmor(In{Pod: p})); d != "" {
		t.Errorf("by annotation (-want +got):\n%s", d)
	}
}

func TestGroupsPolicy(t *testing.T) {
	testRule(t, "supplementalGroups", map[string]ruleTest{
		"none":  {spec: "{}"},
		"merge": {spec: "securityContext: {supplementalGroupsPolicy: Merge}"},
		"strict": {spec: "securityContext: {supplementalGroupsPolicy: Strict}", config: Config{Standalone: true},
			want: block(SupplementalGroupsPolicyNotSupported,
				"SupplementalGroupsPolicy=Strict is not supported in this node")},
		"of a cluster": {spec: "securityContext: {supplementalGroupsPolicy: Strict}",
			want: reject(SupplementalGroupsPolicyNotSupported,
				"SupplementalGroupsPolicy=Strict is not supported in this node")},
		"supported": {spec: "securityContext: {supplementalGroupsPolicy: Strict}",
			config: Config{SupplementalGroupsPolicy: true}},
	})
}

func TestSELinux(t *testing.T) {
	without := Config{NoSELinux: "no labels here"}
	no := block(SELinuxNotSupported, "cannot set the pod's SELinux labels (seLinuxOptions): no labels here")
	testRule(t, "selinux", map[string]ruleTest{
		"none asked": {spec: "{securityContext: {}, containers: [{name: c, securityContext: {}}]}",
			config: without},
		"the pod's": {spec: "securityContext: {seLinuxOptions: {level: s0}}", config: without, want: no},
		"an init container's": {spec: "initContainers: [{name: c, securityContext: {seLinuxOptions: {level: s0}}}]",
			config: without, want: no},
		"where they are set": {spec: "securityContext: {seLinuxOptions: {level: s0}}"},
	})
}

func TestFeatures(t *testing.T) {
	const restart = "containers: [{name: app, image: i, restartPolicy: Never, restartPolicyRules: [{action: " +
		"RestartAllContainers, exitCodes: {operator: In, values: [7]}}]}]"
	declares := Config{Declared: []string{"RestartAllContainersOnContainerExits"}}
	testRule(t, "features", map[string]ruleTest{
		"none":     {spec: "hostNetwork: true"},
		"declared": {spec: restart, config: declares},
		"not declared": {spec: restart,
			want: reject(PodFeatureUnsupported,
				"Pod requires node features that are not available: RestartAllContainersOnContainerExits")},
		"that this agent has not": {spec: "hostNetwork: true\nhostUsers: false", config: declares,
			want: reject(PodFeatureUnsupported,
				"Pod requires node features that are not available: UserNamespacesHostNetworkSupport")},
		"one that later nodes have": {
			spec: "containers: [{name: app, image: i, volumeMounts: [{name: v, mountPath: /v, bindMountOptions: " +
				"[noexec]}]}]", config: declares,
			want: reject(PodFeatureUnsupported,
				"Pod requires node features that are not available: VolumeBindMountOptions")},
	})
}

func TestUserNamespaces(t *testing.T) {
	without := Config{NoUserNamespaces: "the container runtime does not support user namespaces"}
	testRule(t, "userNamespaces", map[string]ruleTest{
		"the host's":         {spec: "{}", config: without},
		"the host's, spoken": {spec: "hostUsers: true", config: without},
		"its own":            {spec: "hostUsers: false"},
		"its own, not here": {spec: "hostUsers: false", config: without, want: block(UserNamespacesNotSupported,
			"cannot give the pod its own user namespace (hostUsers: false): the container runtime does not support "+
				"user namespaces")},
	})
}

func TestPrivileged(t *testing.T) {
	without := Config{NoPrivileges: "the agent lacks CAP_SYS_ADMIN"}
	const privileged = "initContainers: [{name: i, securityContext: {privileged: true}}]"
	testRule(t, "privileged", map[string]ruleTest{
		"an ordinary pod": {spec: "containers: [{name: c}]", config: without},
		"explicitly not": {spec: "containers: [{name: c, securityContext: {privileged: false}}]",
			config: without},
		"where the agent has everything": {spec: privileged},
		"where it has not": {spec: privileged, config: without, want: block(PrivilegedNotSupported,
			"cannot start privileged containers: the agent lacks CAP_SYS_ADMIN")},
	})
}

func TestProcMount(t *testing.T) {
	hidden := Config{NoProc: "/proc/kcore hides a part of /proc"}
	testRule(t, "procMount", map[string]ruleTest{
		"the host's user namespace": {spec: "{}", config: hidden},
		"all of /proc is visible":   {spec: "hostUsers: false"},
		"a part is hidden": {spec: "hostUsers: false", config: hidden, want: block(ProcMountNotSupported,
			"cannot mount /proc in the pod's own user namespace (hostUsers: false): /proc/kcore hides a part "+
				"of /proc")},
	})
}

// A pod that runs already is held back neither by a missing feature of the node nor by a missing RuntimeClass.
func TestNothingThatMattersForAStartHoldsARunningPodBack(t *testing.T) {
	for name, in := range map[string]In{
		"a feature": {Pod: spec(t, "hostUsers: false"), Node: facts(), Config: Config{NoUserNamespaces: "too old"}},
		"a class":   {Pod: spec(t, "runtimeClassName: sandboxed"), Node: facts()},
	} {
		if a, _ := Admit(in); a.Verdict == Admitted {
			t.Errorf("%s: a new pod is admitted", name)
		}
		in.Running = true
		if a, _ := Admit(in); a.Verdict != Admitted {
			t.Errorf("%s: a running pod is %v: %s", name, a.Verdict, a.Message)
		}
	}
}

func TestTaints(t *testing.T) {
	tainted := Config{Taints: []corev1.Taint{
		{Key: "later", Effect: corev1.TaintEffectNoSchedule},
		{Key: "only", Value: "db", Effect: corev1.TaintEffectNoExecute},
	}}
	no := reject(TaintToleration,
		"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate (only=db:NoExecute)")
	tolerating := func(text string) string { return "tolerations: [{" + text + "}]" }
	testRule(t, "taints", map[string]ruleTest{
		"no taint":             {spec: "{}"},
		"none tolerated":       {spec: "{}", config: tainted, want: no},
		"by value":             {spec: tolerating("key: only, value: db, effect: NoExecute"), config: tainted},
		"by another value":     {spec: tolerating("key: only, operator: Equal, value: web"), config: tainted, want: no},
		"by key":               {spec: tolerating("key: only, operator: Exists"), config: tainted},
		"by another key":       {spec: tolerating("key: later, operator: Exists"), config: tainted, want: no},
		"everything":           {spec: tolerating("operator: Exists"), config: tainted},
		"everything scheduled": {spec: tolerating("operator: Exists, effect: NoSchedule"), config: tainted, want: no},
	})
	p := spec(t, "{}")
	p.Annotations = map[string]string{pod.AnnotationConfigSource: "file"}
	if got := checkTaints(In{Pod: p, Config: tainted}); got.Verdict != Admitted {
		t.Errorf("a static pod: %+v", got)
	}
}

// What a DRA driver serves is not the node's to count, of this pod and of others (KEP-5004).
func TestClaimedResources(t *testing.T) {
	const implicit = "deviceclass.resource.kubernetes.io/gpu"
	claimed := func(p *corev1.Pod, container string) *corev1.Pod {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "made",
			RequestMappings: []corev1.ContainerExtendedResourceRequest{
				{ContainerName: container, ResourceName: "example.com/dongle", RequestName: "r0"},
				{ContainerName: container, ResourceName: implicit, RequestName: "r1"},
			}}
		return p
	}
	one := other(t, "one", requests("example.com/dongle: 1"))
	one.Pod = claimed(one.Pod, "c")
	for title, test := range map[string]struct {
		in   In
		want Answer
	}{
		"served by a driver": {In{Pod: claimed(spec(t, requests("example.com/dongle: 5, "+implicit+": 1")), "c")},
			Answer{}},
		"of another container": {In{Pod: claimed(spec(t, requests(implicit+": 1")), "d")},
			reject("OutOf"+implicit, "Node didn't have enough resource: %s, requested: 1, used: 0, capacity: 0",
				implicit)},
		"beside one that has none": {In{Pod: spec(t, requests("example.com/dongle: 1")), Admitted: []PodInfo{one}},
			Answer{}},
	} {
		test.in.Node = facts()
		if d := cmp.Diff(test.want, checkResources(test.in)); d != "" {
			t.Errorf("%s (-want +got):\n%s", title, d)
		}
	}
}

// TestDevices asks for devices that come and go with their plugins.
func TestDevices(t *testing.T) {
	const name = "example.com/gpu"
	now := time.Unix(100, 0)
	inventory := func(healthy ...bool) device.Inventory {
		inv := device.Inventory{name: nil}
		for i, h := range healthy {
			inv[name] = append(inv[name], device.Device{ID: fmt.Sprint(i), Healthy: h})
		}
		return inv
	}
	missing := func(used, capacity int) string {
		return fmt.Sprintf("Node didn't have enough resource: example.com/gpu, requested: 2, used: %d, capacity: %d",
			used, capacity)
	}
	wait := Answer{Verdict: NotYet, Reason: "OutOfexample.com/gpu", Until: now.Add(1),
		Message: "waiting for a device plugin that offers example.com/gpu: " + missing(0, 0)}
	given := resource.Allocation{
		Containers: map[string]resource.Holding{"c": {Devices: map[corev1.ResourceName][]device.ID{name: {"0", "1"}}}}}
	for title, test := range map[string]struct {
		in   In
		want Answer
	}{
		"all are there": {In{Devices: inventory(true, true)}, Answer{}},
		"one is not healthy": {In{Devices: inventory(true, false)},
			reject("OutOfexample.com/gpu", "%s", missing(0, 1))},
		"one is taken": {In{Devices: inventory(true, true),
			Admitted: []PodInfo{other(t, "one", requests("example.com/gpu: 1"))}},
			reject("OutOfexample.com/gpu", "%s", missing(1, 2))},
		"no plugin yet":             {In{PluginsBy: now.Add(1)}, wait},
		"a plugin without a device": {In{PluginsBy: now.Add(1), Devices: inventory()}, wait},
		"a plugin that is lost":     {In{PluginsBy: now.Add(1), Devices: inventory(false, false)}, wait},
		"no plugin any more":        {In{PluginsBy: now}, reject("OutOfexample.com/gpu", "%s", missing(0, 0))},
		"its own, plugin or not":    {In{PluginsBy: now, Given: given}, Answer{}},
		"written on the Node":       {In{Offered: list(name, "2")}, Answer{}},
		"some of that is taken": {In{PluginsBy: now.Add(1), Offered: list(name, "2"),
			Admitted: []PodInfo{other(t, "one", requests("example.com/gpu: 1"))}},
			reject("OutOfexample.com/gpu", "%s", missing(1, 2))},
		"none is on the Node": {In{PluginsBy: now, Offered: list(name, "0")},
			reject("OutOfexample.com/gpu", "%s", missing(0, 0))},
		"it would wait, but for CPU": {In{PluginsBy: now.Add(1),
			Admitted: []PodInfo{other(t, "one", requests("cpu: 2"))}},
			reject("OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 2000, capacity: 2000")},
		"one is about to be free": {In{Devices: inventory(true, true),
			Admitted: []PodInfo{ending(other(t, "one", requests("example.com/gpu: 1")), now)}},
			Answer{Verdict: NotYet, Reason: "OutOfexample.com/gpu", Until: now,
				Message: "waiting for pod default/one to end: " + missing(1, 2)}},
	} {
		test.in.Pod, test.in.Node, test.in.Now, test.in.Config.Standalone = spec(t,
			requests("cpu: 1, example.com/gpu: 2")), facts(), now, true
		if d := cmp.Diff(test.want, checkResources(test.in)); d != "" {
			t.Errorf("%s (-want +got):\n%s", title, d)
		}
	}
}

// TestTopology has a node that can give CPUs of their own to one pod at a time.
func TestTopology(t *testing.T) {
	full := reason.New("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
	allot := func(beside []types.UID) (resource.Allocation, error) {
		if len(beside) > 0 {
			return resource.Allocation{}, full
		}
		return resource.Allocation{}, nil
	}
	at := time.Unix(60, 0)
	one := other(t, "one", requests("cpu: 1"))
	for title, test := range map[string]struct {
		in   In
		want Answer
	}{
		"nothing is given away": {In{Admitted: []PodInfo{one}}, Answer{}},
		"the first":             {In{Allot: allot}, Answer{}},
		"the second": {In{Allot: allot, Admitted: []PodInfo{one}},
			reject("TopologyAffinityError", "Resources cannot be allocated with Topology locality")},
		"after one that ends": {In{Allot: allot, Admitted: []PodInfo{ending(one, at)}},
			Answer{Verdict: NotYet, Reason: "TopologyAffinityError", Until: at,
				Message: "waiting for pod default/one to end: Resources cannot be allocated with Topology locality"}},
		"beside one that does not": {In{Allot: allot, Admitted: []PodInfo{ending(one, at), other(t, "two", "{}")}},
			reject("TopologyAffinityError", "Resources cannot be allocated with Topology locality")},
		"too big for the whole": {In{Allot: allot, Admitted: []PodInfo{other(t, "two", requests("cpu: 2"))}},
			Answer{}}, // another rule reports this
		"an error without its reason": {In{Allot: func([]types.UID) (resource.Allocation, error) {
			return resource.Allocation{}, errors.New("no")
		}}, reject(UnexpectedAdmissionError, "no")},
	} {
		test.in.Pod, test.in.Node = spec(t, requests("cpu: 1")), facts()
		if d := cmp.Diff(test.want, checkTopology(test.in)); d != "" {
			t.Errorf("%s (-want +got):\n%s", title, d)
		}
	}
}

package cgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
)

func list(pairs ...string) corev1.ResourceList {
	if len(pairs) == 0 {
		return nil
	}
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(requests, limits corev1.ResourceList) corev1.Container {
	c := container(requests, limits)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func apps(c ...corev1.Container) corev1.PodSpec { return corev1.PodSpec{Containers: c} }

func TestForPod(t *testing.T) {
	guaranteed := list("cpu", "500m", "memory", "128Mi")
	tests := map[string]struct {
		spec corev1.PodSpec
		o    Options
		qos  corev1.PodQOSClass
		want hierarchy.Limits
	}{
		"best effort": {
			spec: apps(container(nil, nil)), o: Options{CFSQuota: true, PidsLimit: -1},
			qos: "BestEffort", want: hierarchy.Limits{Shares: 2},
		},
		"best effort with a bound on processes": {
			spec: apps(container(nil, nil)), o: Options{CFSQuota: true, PidsLimit: 100},
			qos: "BestEffort", want: hierarchy.Limits{Shares: 2, Pids: 100},
		},
		"guaranteed": {
			spec: apps(container(guaranteed, guaranteed), container(guaranteed, guaranteed)),
			o:    Options{CFSQuota: true},
			qos:  "Guaranteed", want: hierarchy.Limits{Shares: 1024, Quota: 100000, Period: 100000, Memory: 256 << 20},
		},
		"guaranteed without quota": {
			spec: apps(container(guaranteed, guaranteed)),
			qos:  "Guaranteed", want: hierarchy.Limits{Shares: 512, Quota: -1, Period: 100000, Memory: 128 << 20},
		},
		"another period": {
			spec: apps(container(guaranteed, guaranteed)), o: Options{CFSQuota: true, CFSPeriod: 10 * time.Millisecond},
			qos: "Guaranteed", want: hierarchy.Limits{Shares: 512, Quota: 5000, Period: 10000, Memory: 128 << 20},
		},
		"burstable, requests alone": {
			spec: apps(container(list("cpu", "250m"), nil)), o: Options{CFSQuota: true},
			qos: "Burstable", want: hierarchy.Limits{Shares: 256},
		},
		"burstable, every container bounded": {
			spec: apps(container(list("cpu", "250m", "memory", "1Mi"), list("cpu", "1", "memory", "2Mi"))),
			o:    Options{CFSQuota: true},
			qos:  "Burstable", want: hierarchy.Limits{Shares: 256, Quota: 100000, Period: 100000, Memory: 2 << 20},
		},
		"burstable, one of two containers bounded": {
			spec: apps(container(list("cpu", "250m"), list("cpu", "1", "memory", "2Mi")),
				container(nil, list("memory", "1Mi"))), o: Options{CFSQuota: true},
			qos: "Burstable", want: hierarchy.Limits{Shares: 256, Memory: 3 << 20},
		},
		"burstable, memory alone, a tiny share": {
			spec: apps(container(list("memory", "1Mi"), list("memory", "1Mi"))), o: Options{CFSQuota: true},
			qos: "Burstable", want: hierarchy.Limits{Shares: 2, Memory: 1 << 20},
		},
		"the smallest quota": {
			spec: apps(container(list("cpu", "1m", "memory", "1Mi"), list("cpu", "1m", "memory", "1Mi"))),
			o:    Options{CFSQuota: true},
			qos:  "Guaranteed", want: hierarchy.Limits{Shares: 2, Quota: 1000, Period: 100000, Memory: 1 << 20},
		},
		"the largest share": {
			spec: apps(container(list("cpu", "1000"), nil)), o: Options{CFSQuota: true},
			qos: "Burstable", want: hierarchy.Limits{Shares: 262144},
		},
		"an init container larger than the app containers": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{container(list("cpu", "2", "memory", "1Gi"),
					list("cpu", "2", "memory", "1Gi"))},
				Containers: []corev1.Container{container(guaranteed, guaranteed)},
			}, o: Options{CFSQuota: true},
			qos: "Guaranteed", want: hierarchy.Limits{Shares: 2048, Quota: 200000, Period: 100000, Memory: 1 << 30},
		},
		"a sidecar adds to the app containers": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{sidecar(guaranteed, guaranteed), container(guaranteed, guaranteed)},
				Containers:     []corev1.Container{container(guaranteed, guaranteed)},
			}, o: Options{CFSQuota: true},
			qos: "Guaranteed", want: hierarchy.Limits{Shares: 1024, Quota: 100000, Period: 100000, Memory: 256 << 20},
		},
		"overhead": {
			spec: corev1.PodSpec{Containers: []corev1.Container{container(guaranteed, guaranteed)},
				Overhead: list("cpu", "500m", "memory", "128Mi")},
			o:   Options{CFSQuota: true},
			qos: "Guaranteed", want: hierarchy.Limits{Shares: 1024, Quota: 100000, Period: 100000, Memory: 256 << 20},
		},
		"pod-level resources": {
			spec: corev1.PodSpec{
				Resources: &corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1Gi"),
					Limits: list("cpu", "2", "memory", "1Gi")},
				Containers: []corev1.Container{container(list("cpu", "100m"), nil), container(nil, nil)},
			}, o: Options{CFSQuota: true},
			qos: "Burstable", want: hierarchy.Limits{Shares: 1024, Quota: 200000, Period: 100000, Memory: 1 << 30},
		},
		"pod-level resources, guaranteed": {
			spec: corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Requests: guaranteed, Limits: guaranteed},
				Containers: []corev1.Container{container(nil, nil)},
			}, o: Options{CFSQuota: true},
			qos: "Guaranteed", want: hierarchy.Limits{Shares: 512, Quota: 50000, Period: 100000, Memory: 128 << 20},
		},
		"huge pages": {
			spec: apps(container(list("cpu", "1", "hugepages-2Mi", "4Mi"), list("hugepages-2Mi", "4Mi"))),
			qos:  "Burstable", want: hierarchy.Limits{Shares: 1024, HugePages: map[int64]int64{2 << 20: 4 << 20}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: test.spec}
			if got := pod.QOS(p); got != test.qos {
				t.Errorf("QOS = %s, want %s", got, test.qos)
			}
			want := test.want
			if want.HugePages == nil {
				want.HugePages = map[int64]int64{}
			}
			if d := cmp.Diff(want, ForPod(p, test.o)); d != "" {
				t.Errorf("limits (-want +got):\n%s", d)
			}
		})
	}
}

func TestBurstableShares(t *testing.T) {
	pod := func(phase corev1.PodPhase, requests, limits corev1.ResourceList) *corev1.Pod {
		return &corev1.Pod{Spec: apps(container(requests, limits)), Status: corev1.PodStatus{Phase: phase}}
	}
	tests := map[string]struct {
		pods []*corev1.Pod
		want demand
	}{
		"none": {nil, demand{shares: 2}},
		"the burstable ones that have not ended": {[]*corev1.Pod{
			pod("Running", list("cpu", "1"), nil), pod("Pending", list("cpu", "500m"), nil),
			pod("Failed", list("cpu", "4"), nil), pod("Succeeded", list("cpu", "4"), nil),
			pod("Running", nil, nil),
			pod("Running", list("cpu", "4", "memory", "1Mi"), list("cpu", "4", "memory", "1Mi")),
		}, demand{shares: 1536, guaranteed: 1 << 20}},
		"memory": {[]*corev1.Pod{pod("Running", list("memory", "3Mi"), nil),
			pod("Running", list("memory", "2Mi"), nil)}, demand{shares: 2, burstable: 5 << 20}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := demandOf(test.pods); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestLevelLimits(t *testing.T) {
	const mi = 1 << 20
	usable := list("cpu", "2", "memory", "1000Mi", "pid", "500", "hugepages-2Mi", "8Mi")
	node := hierarchy.Limits{Shares: 2048, Memory: 1000 * mi, Pids: 500, HugePages: map[int64]int64{2 * mi: 8 * mi}}
	protected := node
	protected.Protected = &hierarchy.Protection{Min: 300 * mi}
	asked := demand{shares: 512, guaranteed: 100 * mi, burstable: 200 * mi}
	tests := map[string]struct {
		config Config
		want   []hierarchy.Limits // Guaranteed, Burstable, BestEffort
	}{
		"by default": {Config{Usable: usable}, []hierarchy.Limits{node, {Shares: 512}, {Shares: 2}}},
		"protected what they request": {
			Config{Usable: usable, Options: Options{MemoryQoS: &config.MemoryQoS{Tiered: true}}},
			[]hierarchy.Limits{protected, {Shares: 512, Protected: &hierarchy.Protection{Low: 200 * mi}}, {Shares: 2}},
		},
		"not protected any more": {
			Config{Options: Options{MemoryQoS: &config.MemoryQoS{}}},
			[]hierarchy.Limits{{Protected: &hierarchy.Protection{}}, {Shares: 512, Protected: &hierarchy.Protection{}},
				{Shares: 2}},
		},
		"half is reserved": {
			Config{Usable: usable, QOSReserved: 50},
			[]hierarchy.Limits{node, {Shares: 512, Memory: 950 * mi}, {Shares: 2, Memory: 850 * mi}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []hierarchy.Limits
			for _, class := range classes() {
				got = append(got, levelLimits(class, asked, test.config))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReservedLimits(t *testing.T) {
	amounts := list("cpu", "500m", "memory", "1Gi", "pid", "100")
	tests := map[string]struct {
		reserved Reserved
		options  Options
		want     hierarchy.Limits
	}{
		"all": {Reserved{Amounts: amounts}, Options{},
			hierarchy.Limits{Shares: 512, Memory: 1 << 30, Pids: 100}},
		"compressible": {Reserved{Amounts: amounts, Compressible: true}, Options{}, hierarchy.Limits{Shares: 512}},
		"protected": {Reserved{Amounts: amounts}, Options{MemoryQoS: &config.MemoryQoS{}},
			hierarchy.Limits{Shares: 512, Memory: 1 << 30, Pids: 100, Protected: &hierarchy.Protection{Min: 1 << 30}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, reservedLimits(test.reserved, test.options)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseExisting(t *testing.T) {
	for _, test := range []struct {
		path   string
		driver hierarchy.Driver
		want   hierarchy.Name
	}{
		{"/system.slice", hierarchy.Cgroupfs, hierarchy.Name{"system.slice"}},
		{"/system.slice", hierarchy.Systemd, hierarchy.Name{"system"}},
		{"/system.slice/system-kube_node.slice", hierarchy.Systemd, hierarchy.Name{"system", "kube-node"}},
		{"/a/b-c", hierarchy.Systemd, hierarchy.Name{"a", "b-c"}},
	} {
		if diff := cmp.Diff(test.want, parseExisting(test.path, test.driver)); diff != "" {
			t.Errorf("%s: %s", test.path, diff)
		}
	}
}

func TestNames(t *testing.T) {
	const uid = types.UID("8f3c1a52-7d0e-4f6b-9c8a-2b1d3e4f5a6b")
	tests := []struct {
		root, cgroupfs, systemd string
		class                   corev1.PodQOSClass
	}{
		{"", "/kubepods/pod8f3c1a52-7d0e-4f6b-9c8a-2b1d3e4f5a6b",
			"/kubepods.slice/kubepods-pod8f3c1a52_7d0e_4f6b_9c8a_2b1d3e4f5a6b.slice", corev1.PodQOSGuaranteed},
		{"/", "/kubepods/burstable/pod8f3c1a52-7d0e-4f6b-9c8a-2b1d3e4f5a6b",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8f3c1a52_7d0e_4f6b_9c8a_2b1d3e4f5a6b.slice",
			corev1.PodQOSBurstable},
		{"/edge/my-pods", "/edge/my-pods/kubepods/besteffort/pod8f3c1a52-7d0e-4f6b-9c8a-2b1d3e4f5a6b",
			"/edge.slice/edge-my_pods.slice/edge-my_pods-kubepods.slice/edge-my_pods-kubepods-besteffort.slice/" +
				"edge-my_pods-kubepods-besteffort-pod8f3c1a52_7d0e_4f6b_9c8a_2b1d3e4f5a6b.slice",
			corev1.PodQOSBestEffort},
	}
	for _, test := range tests {
		for driver, want := range map[hierarchy.Driver]string{hierarchy.Cgroupfs: test.cgroupfs,
			hierarchy.Systemd: test.systemd} {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
			switch test.class {
			case corev1.PodQOSGuaranteed:
				p.Spec = apps(container(list("cpu", "1", "memory", "1Mi"), list("cpu", "1", "memory", "1Mi")))
			case corev1.PodQOSBurstable:
				p.Spec = apps(container(list("cpu", "1"), nil))
			case corev1.PodQOSBestEffort:
			}
			got := New(Config{Driver: driver, Root: test.root}).Parent(p)
			if got != want {
				t.Errorf("%s below %q: got %s, want %s", driver, test.root, got, want)
			}
			base := got[len(got)-len(lastPart(got)):]
			if back, ok := podUID(base, driver); !ok || back != uid {
				t.Errorf("podUID(%q) = %q, %v", base, back, ok)
			}
		}
	}
}

func lastPart(p string) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] == '/' {
			return p[i+1:]
		}
	}
	return p
}

func TestPodUIDOfOthers(t *testing.T) {
	for name, driver := range map[string]hierarchy.Driver{
		"burstable": hierarchy.Cgroupfs, "pod": hierarchy.Cgroupfs, "kubepods-burstable.slice": hierarchy.Systemd,
		"cri-containerd-1.scope": hierarchy.Systemd,
		"kubepods.slice":         hierarchy.Systemd,
	} {
		if uid, ok := podUID(name, driver); ok {
			t.Errorf("%s: %q is not a pod, got %q", driver, name, uid)
		}
	}
}

func TestPodNameRefuses(t *testing.T) {
	for _, uid := range []types.UID{"", "..", "a/../../b", "/etc", "a\x00"} {
		if n, err := podName(nil, corev1.PodQOSBestEffort, uid); err == nil {
			t.Errorf("UID %q: %v, want an error", uid, n)
		}
	}
}

func TestGrown(t *testing.T) {
	tests := []struct {
		name             string
		have, want, grow hierarchy.Limits
	}{
		{"more of both", hierarchy.Limits{Quota: 10_000, Period: 100_000, Memory: 1 << 20},
			hierarchy.Limits{Shares: 2, Quota: 20_000, Period: 100_000, Memory: 2 << 20},
			hierarchy.Limits{Shares: 2, Quota: 20_000, Period: 100_000, Memory: 2 << 20}},
		{"less of both", hierarchy.Limits{Quota: 20_000, Period: 100_000, Memory: 2 << 20},
			hierarchy.Limits{Shares: 2, Quota: 10_000, Period: 100_000, Memory: 1 << 20},
			hierarchy.Limits{Shares: 2, Quota: 20_000, Period: 100_000, Memory: 2 << 20}},
		{"the same in another period", hierarchy.Limits{Quota: 20_000, Period: 100_000, Memory: 1},
			hierarchy.Limits{Quota: 15_000, Period: 50_000, Memory: 1},
			hierarchy.Limits{Quota: 15_000, Period: 50_000, Memory: 1}},
		{"bounded from now on", hierarchy.Limits{Quota: -1, Memory: -1},
			hierarchy.Limits{Quota: 10_000, Period: 100_000, Memory: 1},
			hierarchy.Limits{Quota: -1, Memory: -1}},
		{"no bound any more", hierarchy.Limits{Quota: 10_000, Period: 100_000, Memory: 1}, hierarchy.Limits{},
			hierarchy.Limits{Quota: -1, Memory: -1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if d := cmp.Diff(test.grow, grown(test.have, test.want)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/metrics"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/timeline"
)

var epoch = time.Unix(1700000000, 0)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func checkMetrics(t *testing.T, g prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(g, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// working is a fleet with one pod.
type working types.UID

func (w working) Working(uid types.UID) bool { return uid == types.UID(w) }

func (w working) Syncing(uid types.UID) (*corev1.Pod, bool) { return &corev1.Pod{}, w.Working(uid) }

// A node with one running pod, one waiting pod of a manifest, and leftovers of a third.
func TestPods(t *testing.T) {
	desired, observed := store.New[types.UID, *pod.Pod](), store.New[types.UID, *pod.Observed]()
	desired.Put("a",
		&pod.Pod{Pod: &corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: make([]corev1.EphemeralContainer, 1)}},
			Source: pod.SourceAPI})
	desired.Put("b", &pod.Pod{Pod: &corev1.Pod{}, Source: pod.SourceFile})
	observed.Put("a", &pod.Observed{
		Sandboxes: []pod.SandboxStatus{{ID: "1", Ready: true}},
		Containers: []pod.ContainerStatus{{State: pod.StateRunning}, {State: pod.StateRunning},
			{State: pod.StateExited}},
	})
	observed.Put("c",
		&pod.Observed{Sandboxes: []pod.SandboxStatus{{ID: "2"}},
			Containers: []pod.ContainerStatus{{State: pod.StateExited}}})
	reg := prometheus.NewPedanticRegistry()
	mirrors := store.New[types.NamespacedName, *corev1.Pod]()
	mirrors.Put(types.NamespacedName{Name: "b"}, &corev1.Pod{})
	reg.MustRegister(NewPods(PodsOptions{Desired: desired, Observed: observed, Fleet: working("a"), Mirrors: mirrors}))
	checkMetrics(t, reg, `
# HELP kubelet_active_pods Number of pods that are admitted and not at their end; static is "true" for those that `+
		`are not of the API server.
# TYPE kubelet_active_pods gauge
kubelet_active_pods{static=""} 1
kubelet_active_pods{static="true"} 0
# HELP kubelet_desired_pods Number of pods that this node is to run; static is "true" for those that are not of the `+
		`API server.
# TYPE kubelet_desired_pods gauge
kubelet_desired_pods{static=""} 1
kubelet_desired_pods{static="true"} 1
# HELP kubelet_managed_ephemeral_containers Number of ephemeral containers of the pods of this node.
# TYPE kubelet_managed_ephemeral_containers gauge
kubelet_managed_ephemeral_containers 1
# HELP kubelet_mirror_pods Number of mirror pods, by which the API server knows of static pods.
# TYPE kubelet_mirror_pods gauge
kubelet_mirror_pods 1
# HELP kubelet_running_containers Number of containers of running pods, by state.
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="created"} 0
kubelet_running_containers{container_state="exited"} 2
kubelet_running_containers{container_state="running"} 2
kubelet_running_containers{container_state="unknown"} 0
# HELP kubelet_running_pods Number of pods that have a running pod sandbox.
# TYPE kubelet_running_pods gauge
kubelet_running_pods 1
`)
}

func TestAgent(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if err := (Agent{Node: "n1", Version: "v1.36.3", Major: "1", Minor: "36", Unified: true}).Register(
		reg); err != nil {
		t.Fatal(err)
	}
	checkMetrics(t, reg, `
# HELP kubelet_cgroup_version Version of the host's cgroups, 1 or 2.
# TYPE kubelet_cgroup_version gauge
kubelet_cgroup_version 2
# HELP kubelet_node_name The node's name, as a label; always 1.
# TYPE kubelet_node_name gauge
kubelet_node_name{node="n1"} 1
`, "kubelet_cgroup_version", "kubelet_node_name")
	for _, name := range []string{"kubernetes_build_info", "process_cpu_seconds_total", "process_resident_memory_bytes",
		"process_start_time_seconds", "go_goroutines"} {
		if n, err := testutil.GatherAndCount(reg, name); n != 1 || err != nil {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
}

type pair struct{ leaf *x509.Certificate }

func (p pair) Certificate() *tls.Certificate {
	if p.leaf == nil {
		return nil
	}
	return &tls.Certificate{Leaf: p.leaf}
}
func (p pair) Failures() uint64 { return 3 }

func TestCertificates(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(Certificates(pair{&x509.Certificate{NotAfter: at(60)}}, pair{}, func() time.Time {
		return epoch
	})...)
	checkMetrics(t, reg, `
# HELP kubelet_certificate_manager_client_expiration_renew_errors Cumulative number of attempts to renew the client `+
		`certificate that failed.
# TYPE kubelet_certificate_manager_client_expiration_renew_errors counter
kubelet_certificate_manager_client_expiration_renew_errors 3
# HELP kubelet_certificate_manager_client_ttl_seconds Time in seconds that the client certificate is good for, `+
		`negative when it has expired, +Inf when there is none.
# TYPE kubelet_certificate_manager_client_ttl_seconds gauge
kubelet_certificate_manager_client_ttl_seconds 60
# HELP kubelet_certificate_manager_server_ttl_seconds Time in seconds that the server certificate is good for, `+
		`negative when it has expired, +Inf when there is none.
# TYPE kubelet_certificate_manager_server_ttl_seconds gauge
kubelet_certificate_manager_server_ttl_seconds +Inf
# HELP kubelet_server_expiration_renew_errors Cumulative number of attempts to renew the server certificate that failed.
# TYPE kubelet_server_expiration_renew_errors counter
kubelet_server_expiration_renew_errors 3
`)
	if none := Certificates(nil, nil, time.Now); none != nil {
		t.Errorf("metrics for missing certificates: %v", none)
	}
}

// This is the only test that calls Client, because client-go accepts its metrics only once in a process.
func TestClient(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if err := Client(reg); err != nil {
		t.Fatal(err)
	}
	metrics.RequestResult.Increment(t.Context(), "200", "GET", "api:6443")
	metrics.RequestRetry.IncrementRetry(t.Context(), "429", "GET", "api:6443")
	metrics.RequestLatency.Observe(t.Context(), "GET", url.URL{Host: "api:6443", Path: "/api/v1/pods"}, time.Second)
	checkMetrics(t, reg, `
# HELP rest_client_request_retries_total Cumulative number of requests to the API server that were repeated, by `+
		`status code, verb and host.
# TYPE rest_client_request_retries_total counter
rest_client_request_retries_total{code="429",host="api:6443",verb="GET"} 1
# HELP rest_client_requests_total Cumulative number of requests to the API server, by status code, method and host.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200",host="api:6443",method="GET"} 1
`, "rest_client_requests_total", "rest_client_request_retries_total")
	if n, err := testutil.GatherAndCount(reg, "rest_client_request_duration_seconds"); n != 1 || err != nil {
		t.Errorf("%d series of durations, %v", n, err)
	}
}

func TestMerged(t *testing.T) {
	for name, c := range map[string]struct {
		all  []interval
		want time.Duration
	}{
		"none":              {nil, 0},
		"apart":             {[]interval{{at(0), at(2)}, {at(5), at(6)}}, 3 * time.Second},
		"overlapping":       {[]interval{{at(0), at(4)}, {at(2), at(6)}}, 6 * time.Second},
		"inside, unordered": {[]interval{{at(2), at(3)}, {at(0), at(6)}}, 6 * time.Second},
	} {
		if d := cmp.Diff(c.want, merged(c.all)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// waiting, and up since second 8 after an init container of 3 s.
var (
	waiting = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "app"}}}
	up      = corev1.PodStatus{Phase: corev1.PodRunning,
		ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(8))}}}},
		InitContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				StartedAt: metav1.NewTime(at(4)), FinishedAt: metav1.NewTime(at(7))}}}},
	}
)

// A pod is created at second 0, seen at 1, pulls an image for 2 s, runs at 9 and is shown at 10.
func TestStarts(t *testing.T) {
	for name, c := range map[string]struct {
		volume           corev1.VolumeSource
		before           corev1.PodStatus
		api              corev1.PodStatus
		seen, total, sli float64 // sums; 0: not observed
	}{
		"plain": {before: waiting, seen: 8, total: 10, sli: 5},
		"without state": {before: waiting,
			volume: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, seen: 8, total: 10, sli: 5},
		"with state": {before: waiting,
			volume: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, seen: 8, total: 10},
		"ran before this process": {before: up},
		"ended":                   {before: corev1.PodStatus{Phase: corev1.PodFailed}},
		"waited for a node": {before: waiting, api: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}},
	} {
		t.Run(name, func(t *testing.T) {
			now := at(2)
			reg := prometheus.NewPedanticRegistry()
			s, err := NewStarts(reg, recorded{Spans: []timeline.Span{
				{Kind: timeline.KindImage, Start: at(2), End: at(4)},
				{Kind: timeline.KindImage, Start: at(2), End: at(3)},
				{Kind: timeline.KindCRI, Start: at(0), End: at(9)},
			}}, func() time.Time { return now })
			if err != nil {
				t.Fatal(err)
			}
			p := &pod.Pod{Seen: at(1), Pod: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{UID: "u", CreationTimestamp: metav1.NewTime(at(0))},
				Spec: corev1.PodSpec{
					Volumes: []corev1.Volume{
						{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}}}}, Status: c.api,
			}}
			if c.volume != (corev1.VolumeSource{}) {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: c.volume})
			}
			s.Status(p, c.before)
			s.Shown(p, c.before)
			now = at(9)
			s.Status(p, up)
			now = at(10)
			for range 2 { // repeated statuses are not counted again
				s.Shown(p, up)
				s.Status(p, up)
			}
			got := map[string]float64{}
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetType() == dto.MetricType_COUNTER {
					continue // see TestEnds
				}
				if h := f.Metric[0].Histogram; h != nil {
					got[f.GetName()] = h.GetSampleSum()
					if n := h.GetSampleCount(); n > 1 {
						t.Errorf("%s: %d samples", f.GetName(), n)
					}
				} else {
					got[f.GetName()] = f.Metric[0].Gauge.GetValue()
				}
			}
			want := map[string]float64{
				"kubelet_pod_start_duration_seconds": c.seen, "kubelet_pod_start_total_duration_seconds": c.total,
				"kubelet_pod_start_sli_duration_seconds":               c.sli,
				"kubelet_first_network_pod_start_sli_duration_seconds": c.sli,
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// Each ended instance counts once, however often its status is reported, and not if it ended before this agent started.
func TestEnds(t *testing.T) {
	e := newEnds(at(100))
	ended := func(id string, code int32, why string, second int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id, ExitCode: code,
			Reason: why, FinishedAt: metav1.NewTime(at(second))}}
	}
	for _, s := range []corev1.PodStatus{
		{InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: ended("i", 0, "Completed", 50)}}},
		{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: ended("1", 137, "OOMKilled", 110)}}},
		{ContainerStatuses: []corev1.ContainerStatus{{Name: "app",
			LastTerminationState: ended("1", 137, "OOMKilled", 110)}}},
		{ContainerStatuses: []corev1.ContainerStatus{{Name: "app",
			LastTerminationState: ended("2", 137, "OOMKilled", 120)}}},
		{EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "look", State: ended("e", 1, "Error", 130)}}},
	} {
		e.status("u", s)
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(e.total)
	checkMetrics(t, reg, `
# HELP kubelet_terminated_containers_total Cumulative number of containers that have ended, by type, exit code and `+
		`reason.
# TYPE kubelet_terminated_containers_total counter
kubelet_terminated_containers_total{container_type="container",exit_code="137",reason="OOMKilled"} 2
kubelet_terminated_containers_total{container_type="ephemeral_container",exit_code="1",reason="Error"} 1
`)
}

// recorded is the timeline of every pod.
type recorded timeline.Timeline

func (r recorded) Get(types.UID) (timeline.Timeline, bool) { return timeline.Timeline(r), true }

package printer

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/golden"
)

// printed compares output with testdata/NAME.
func printed(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	golden.Text(t, name, out.String())
	for line := range strings.Lines(out.String()) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("%s: blanks at the end of %q", name, line)
		}
	}
}

func load[T any](t *testing.T, name string) *T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	v := new(T)
	if err := yaml.UnmarshalStrict(data, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func at(d time.Duration) metav1.Time { return metav1.NewTime(t0.Add(d)) }

func TestPods(t *testing.T) {
	pods := load[corev1.PodList](t, "pods.yaml")
	for name, o := range map[string]Options{"pods.txt": {}, "pods-wide.txt": {Wide: true, Namespaces: true}} {
		printed(t, name, func(w io.Writer) error {
			table := NewPods(w, o)
			for i := range pods.Items {
				table.Add(&pods.Items[i], t0.Add(90*time.Minute))
			}
			return table.Flush()
		})
	}
}

func TestDescribePod(t *testing.T) {
	pods := load[corev1.PodList](t, "pods.yaml")
	events := load[corev1.EventList](t, "events.yaml")
	now := t0.Add(90 * time.Minute)
	printed(t, "describe.txt", func(w io.Writer) error { return DescribePod(w, &pods.Items[0], events.Items, now) })
	printed(t, "describe-bare.txt", func(w io.Writer) error { return DescribePod(w, &pods.Items[1], nil, now) })
}

func TestEvents(t *testing.T) {
	events := load[corev1.EventList](t, "events.yaml")
	for name, o := range map[string]Options{"events.txt": {}, "events-wide.txt": {Wide: true, Namespaces: true}} {
		printed(t, name, func(w io.Writer) error {
			table := NewEvents(w, o)
			for i := range events.Items {
				table.Add(&events.Items[i], t0.Add(time.Hour))
			}
			return table.Flush()
		})
	}
}

func TestImagesAndProblems(t *testing.T) {
	images := []api.Image{
		{ID: "sha256:0123456789abcdef0123", Tags: []string{"example.test/web:v1", "example.test/web:latest"},
			Digests: []string{"example.test/web@sha256:beef"}, Size: 1_420_000},
		{ID: "sha256:fedcba98", Digests: []string{"example.test/old@sha256:cafe"}, Size: 812},
		{ID: "sha256:77", Size: 35_000_000_000, Pinned: true},
	}
	printed(t, "images.txt", func(w io.Writer) error { return Images(w, images, Options{}) })
	printed(t, "images-wide.txt", func(w io.Writer) error { return Images(w, images, Options{Wide: true}) })
	problems := []api.Problem{
		{Origin: "/etc/berth/manifests/web.yaml", Message: "line 7: spec.containers[0].imgae: unknown field",
			Since: at(0)},
		{Origin: "http://example.test/pods", Message: "connection refused", Since: at(-time.Hour)},
	}
	printed(t, "problems.txt", func(w io.Writer) error { return Problems(w, problems, t0.Add(time.Minute)) })
	printed(t, "problems-none.txt", func(w io.Writer) error { return Problems(w, nil, t0) })
}

// A table that grows over time keeps its column widths as long as the new rows fit.
func TestTableGoesOn(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out, "A", "LONG NAME", "C")
	for _, row := range [][]string{{"1", "x", "y"}, {"lönger", "x", "y\nz"}, {"2", "", "y"}} {
		table.Row(row...)
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	const want = "A   LONG NAME   C\n1   x           y\nlönger   x           y z\n2                    y\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 999: "999B", 1000: "1.0kB", 1_420_000: "1.4MB", 5e15: "5000.0TB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestPressure(t *testing.T) {
	const mi = 1 << 20
	p := &api.Pressure{
		Signals: []api.Signal{
			{Name: "memory.available", Available: 180 * mi, Capacity: 1024 * mi, ChangePerSecond: new(-20.0 * mi),
				Thresholds: []api.Threshold{
					{Limit: 100 * mi, Distance: 80 * mi},
					{Limit: 500 * mi, Distance: -320 * mi, GracePeriod: &metav1.Duration{Duration: 90 * time.Second}},
				}},
			{Name: "nodefs.inodesFree", Available: 70_000, Capacity: 1_000_000, ChangePerSecond: new(12.5),
				Thresholds: []api.Threshold{{Limit: 50_000, Distance: 20_000}}},
			{Name: "pid.available", Available: 4_000_000, Capacity: 4_194_304, ChangePerSecond: new(-1.0),
				Thresholds: []api.Threshold{{Limit: 1000, Distance: 3_999_000}}},
			{Name: "imagefs.available", Available: 10 * mi, Capacity: 1024 * mi,
				Thresholds: []api.Threshold{{Limit: 5 * mi, Distance: 5 * mi}}},
		},
		Orders: []api.EvictionOrder{
			{Signals: []string{"memory.available", "allocatableMemory.available"}, Pods: []api.EvictionCandidate{
				{Namespace: "default", Name: "hog", Usage: new(int64(300 * mi)), Request: 100 * mi, Victim: true},
				{Namespace: "default", Name: "slow", Priority: -1, Usage: new(int64(mi)), Ending: true},
				{Namespace: "default", Name: "unknown", Request: mi},
				{Namespace: "kube-system", Name: "dns", Priority: 2_000_001_000, Usage: new(int64(9 * mi)),
					Critical: true},
			}},
			{Signals: []string{"pid.available"}},
		},
	}
	printed(t, "pressure.txt", func(w io.Writer) error {
		if err := Signals(w, p); err != nil {
			return err
		}
		return EvictionOrders(w, p)
	})
	status := &api.Status{Node: "node1", Root: "/var/lib/berth", PID: 4711, StartedAt: at(0),
		Version: api.Version{Version: "1.2.3"}, Runtime: api.Runtime{Name: "containerd", Version: "v2.4.2",
			CgroupDriver: "cgroupfs", Handlers: []corev1.NodeRuntimeHandler{
				{}, {Name: "crun"}, {Name: "runc", Features: &corev1.NodeRuntimeHandlerFeatures{
					UserNamespaces: new(true), RecursiveReadOnlyMounts: new(false)}},
			}, HandlerPrograms: []api.HandlerProgram{
				{Name: "crun", Program: "io.example.crun.v1 (/opt/shim)", Options: []string{"a=b", "c=d"}},
				{Name: "runc", Program: "runc (built in)", CgroupDriver: "cgroupfs"},
			}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady",
			Message: "the agent can run pods"}}}
	printed(t, "node.txt", func(w io.Writer) error { return DescribeNode(w, status, p, nil, t0) })
	status.Runtime.HandlerPrograms = nil
	printed(t, "node-bare.txt", func(w io.Writer) error {
		return DescribeNode(w, status, &api.Pressure{Problem: "the runtime has not named its file systems"}, nil, t0)
	})
}

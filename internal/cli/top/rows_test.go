package top

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/terminal"
)

const mi = 1 << 20

func aPod(name string, requests, limits corev1.ResourceList) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app",
			Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}}}
}

func used(name string, cpu, memory uint64, psi *statsapi.PSIStats) statsapi.PodStats {
	c, m := &statsapi.CPUStats{UsageNanoCores: &cpu, PSI: psi}, &statsapi.MemoryStats{WorkingSetBytes: &memory}
	return statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: "default", Name: name, UID: name}, CPU: c,
		Memory: m, Containers: []statsapi.ContainerStats{{Name: "app", CPU: c, Memory: m}}}
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory)}
}

func TestPodRows(t *testing.T) {
	pods := []corev1.Pod{aPod("web", list("100m", "64Mi"), list("1", "128Mi")), aPod("batch", nil, nil),
		aPod("not-measured", nil, nil)}
	usage := &statsapi.Summary{Pods: []statsapi.PodStats{
		used("web", 120e6, 31*mi, &statsapi.PSIStats{Some: statsapi.PSIData{Avg10: 12.4}}),
		used("batch", 2e9, 5*mi, nil),
		{PodRef: statsapi.PodReference{UID: "gone"}}}}
	rows := podRows(usage, pods, false)
	for key, want := range map[string][][]string{
		byCPU: {{"batch", "2000m", "-", "-", "5.0Mi", "-", "-", "-"},
			{"web", "120m", "100m", "1000m", "31Mi", "64Mi", "128Mi", "cpu 12%"}},
		byMemory: {{"web", "120m", "100m", "1000m", "31Mi", "64Mi", "128Mi", "cpu 12%"},
			{"batch", "2000m", "-", "-", "5.0Mi", "-", "-", "-"}},
	} {
		order(rows, key)
		var got [][]string
		for _, r := range rows {
			cells := append([]string{r.pod}, r.cpu.cells(cores)...)
			got = append(got, append(append(cells, r.memory.cells(printer.Size)...), r.waits()))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", key, diff)
		}
	}
	for key, first := range map[string]string{byStall: "web", byName: "batch"} {
		if order(rows, key); rows[0].pod != first {
			t.Errorf("by %s: %s is first, want %s", key, rows[0].pod, first)
		}
	}
	if rows := podRows(usage, pods[:1], true); len(rows) != 1 || rows[0].container != "app" ||
		rows[0].cpu.limit != 1e9 {
		t.Errorf("rows of containers: %+v", rows)
	}
}

func TestNodeRows(t *testing.T) {
	n := &statsapi.NodeStats{
		CPU:    &statsapi.CPUStats{UsageNanoCores: new(uint64(5e8)), PSI: &statsapi.PSIStats{}},
		Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(256 * mi)), AvailableBytes: new(uint64(768 * mi))},
		Swap:   &statsapi.SwapStats{SwapUsageBytes: new(uint64(0)), SwapAvailableBytes: new(uint64(0))},
		Fs: &statsapi.FsStats{CapacityBytes: new(uint64(1000 * mi)), AvailableBytes: new(uint64(100 * mi)),
			Inodes: new(uint64(100)), InodesFree: new(uint64(99))},
		Rlimit: &statsapi.RlimitStats{MaxPID: new(int64(1000)), NumOfRunningProcesses: new(int64(10))},
	}
	want := []nodeRow{
		{"cpu", "500m", "2000m", "25%", "0%"}, {"memory", "256Mi", "1.0Gi", "25%", "0%"}, {"swap", "0", "0", "-", ""},
		{"disk", "900Mi", "1000Mi", "90%", "0%"}, {"disk inodes", "1", "100", "1%", ""},
		{"processes", "10", "1000", "1%", ""},
	}
	if diff := cmp.Diff(want, nodeRows(n, 2), cmp.AllowUnexported(nodeRow{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPress(t *testing.T) {
	for key, want := range map[byte]string{'c': byCPU, 'm': byMemory, 's': byStall, 'n': byName, 'x': byName} {
		if got, end := press(key, byName); got != want || end {
			t.Errorf("key %q: sort by %s (end: %v), want %s", key, got, end, want)
		}
	}
	for _, key := range []byte{'q', 3, 4} {
		if _, end := press(key, byName); !end {
			t.Errorf("key %d does not end the command", key)
		}
	}
}

func TestPressSortsNothingWithoutPods(t *testing.T) {
	if got, end := press('m', ""); got != "" || end {
		t.Errorf("sort by %q (end: %v)", got, end)
	}
}

func TestFrameFitsTheScreen(t *testing.T) {
	text := "NAME   STALLED\nweb    \x1b[31mcpu 50%\x1b[0m\nlast line\n"
	got := frame("help", text, terminal.Output{Terminal: true, Width: 9, Height: 4})
	want := "\x1b[Hhelp\x1b[K\r\n\x1b[K\r\nNAME   ST\x1b[K\r\nweb    \x1b[31mcp\x1b[0m\x1b[K\x1b[J"
	if got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestLevelStyle(t *testing.T) {
	for text, want := range map[string]terminal.Style{"-": "", "0%": "", "cpu 12%": terminal.Waiting,
		"cpu 1% disk 75%": terminal.Bad} {
		if got := stallStyle(text, nil); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

package test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/bench/plot"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

var (
	soakRun    = flag.Bool("soak", false, "run TestSoak, which takes minutes")
	soakSeed   = flag.Uint64("soak.seed", 0, "seed of TestSoak; 0 chooses one")
	soakPods   = flag.Int("soak.pods", 0, "end TestSoak after this many pods, before -soak.time")
	soakTime   = flag.Duration("soak.time", 8*time.Minute, "how long TestSoak runs pods")
	soakSide   = flag.Int("soak.beside", 8, "how many pods TestSoak runs at a time, beside the resident one")
	soakJoined = flag.Bool("soak.joined", false, "run TestSoak on a node of a cluster, whose API server restarts")
	soakRest   = flag.Int("soak.rest", 0,
		"sample after this many batches, when the agent has returned memory; 0 samples after each batch at once")
	soakDir = flag.String("soak.dir", "../bin/soak", "where TestSoak writes soak.csv and soak.html")
)

// soakFilled is how many pods it takes at most until the records that the agent keeps have reached their bounds: the
// timelines of 100 pods, and 10,000 events. Until then its memory and its files grow.
const soakFilled = 1000

// soakSamples is how many samples after the warm-up a slope needs to be judged: the runtime collects its garbage every
// few batches.
const soakSamples = 12

// soakStays is after how many more pods a file that is still there counts as forgotten. A timeline goes after 100 pods.
const soakStays = 300

const rootFiles = "files of the root"

// TestSoak runs many pods through one agent, several at a time, and uses each: its probes, logs and commands, and a
// ConfigMap that changes. A resident pod is used all the time. Between the batches it samples what the agent and its
// pods have on the machine: none of it may grow with the number of pods that have ended.
func TestSoak(t *testing.T) {
	if !*soakRun {
		t.Skip("make soak runs it")
	}
	dice, seed := dice(t, "-soak.seed", *soakSeed)
	var cluster *kubeapitest.Cluster
	var s *subject
	if *soakJoined {
		cluster, s = newJoinedSubject(t)
	} else {
		s = newSubject(t, "embedded", "")
	}
	check(t, os.MkdirAll(*soakDir, 0o755))
	k := &soak{subject: s, cluster: cluster, dice: dice}
	k.table.Columns = soakColumns
	k.config("resident", "0")
	k.put("resident", k.pod("resident", 0))
	check(t, k.settles(t.Context(), "resident", true))
	began := time.Now()
	for done := 0; (*soakPods == 0 || done < *soakPods) && time.Since(began) < *soakTime; done += *soakSide {
		check(t, k.batch(done))
		if *soakRest > 0 {
			if (done / *soakSide + 1)%*soakRest != 0 {
				continue
			}
			k.rests()
		}
		k.table.Rows = append(k.table.Rows, k.sample(done+*soakSide, time.Since(began)))
		check(t, os.WriteFile(filepath.Join(*soakDir, "soak.csv"), []byte(k.table.CSV()), 0o644))
	}
	if len(k.table.Rows) == 0 {
		t.Fatal("no sample was taken; next: a longer -soak.time or a smaller -soak.rest")
	}
	k.table.Warm = warmUp(k.table.Rows)
	title := fmt.Sprintf("Soak: %.0f pods through one agent", k.table.Rows[len(k.table.Rows)-1][0])
	if cluster != nil {
		title += fmt.Sprintf(" in a cluster, %d restarts of the API server", k.restarts)
	}
	t.Log(title)
	note := fmt.Sprintf("Seed %d. %d pods at a time, beside a resident pod. Sampled between the batches. The "+
		"dashed line is fitted by least squares after the warm-up; its slope is given with its standard error.",
		seed, *soakSide)
	html, err := k.table.HTML(title, note)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(*soakDir, "soak.html"), []byte(html), 0o644))
	k.judge()
}

// warmUp returns how many samples are of the warm-up: a quarter of them, and those before soakFilled pods if enough
// samples to judge are left.
func warmUp(rows [][]float64) int {
	quarter := len(rows) / 4
	filled := slices.IndexFunc(rows, func(row []float64) bool { return row[0] >= soakFilled })
	if filled < 0 || len(rows)-filled < soakSamples {
		return quarter
	}
	return max(quarter, filled)
}

// judge logs the slopes and fails the test for quantities that grow.
func (k *soak) judge() {
	records := []string{"heap (MB)", "resident memory (MB)", "disk of the root (MB)", rootFiles}
	first, last := k.table.Rows[k.table.Warm], k.table.Rows[len(k.table.Rows)-1]
	for at, name := range k.table.Columns[2:] {
		line := k.table.Fit(at + 2)
		k.t.Logf("%-22s %10.4g at the end, slope %.3g ± %.2g per 1,000 pods", name, last[at+2], 1000*line.Slope,
			1000*line.Error)
		if first[0] < soakFilled && slices.Contains(records, name) {
			continue
		}
		if len(k.table.Rows)-k.table.Warm >= soakSamples && line.Grows() {
			k.t.Errorf("%s grows by %.3g ± %.2g per 1,000 pods", name, 1000*line.Slope, 1000*line.Error)
		}
	}
	if stayed := k.stayed(); len(stayed) > 0 {
		k.t.Logf("files of the root that came after the warm-up and stayed:\n%s", strings.Join(stayed, "\n"))
	}
	if first[0] < soakFilled {
		k.t.Logf("%q are not judged: the warm-up had %.0f pods, want at least %d", records, first[0], soakFilled)
	}
}

var soakColumns = []string{"pods", "seconds", "goroutines", "file descriptors", "heap (MB)", "resident memory (MB)",
	"mounts", "network namespaces", "cgroups", "packet filter rules", "disk of the root (MB)", rootFiles,
	"disk of the runtime (MB)", "files of the runtime"}

// soak runs pods through one agent.
type soak struct {
	*subject
	cluster  *kubeapitest.Cluster // nil on a standalone node
	dice     *rand.Rand
	table    plot.Table
	restarts int // of the API server
	// since has the first sample with each file of the root, as an index. The file was in all samples after it.
	since map[string]int
}

// put makes a manifest wanted: in the manifest directory, or in the API server.
func (k *soak) put(name, text string) {
	if k.cluster == nil {
		k.manifest(name, text)
		return
	}
	k.wait("the API server to store "+name, patience, func(ctx context.Context) error {
		return putObject(ctx, k.cluster.Client(), text)
	})
}

// drop removes a pod and its ConfigMap.
func (k *soak) drop(name string) {
	if k.cluster == nil {
		k.manifest(name, "")
		k.manifest("config-"+name, "")
		return
	}
	k.wait("the API server to delete "+name, patience, func(ctx context.Context) error {
		return dropPod(ctx, k.cluster.Client(), name)
	})
}

// full is the name of a pod on the node.
func (k *soak) full(name string) string {
	if k.cluster == nil {
		return name + "-" + nodeName
	}
	return name
}

// pod is the manifest of one of a few kinds of pods, all with the ConfigMap of the same name.
func (k *soak) pod(name string, kind int) string {
	probe := []string{"exec: {command: [/workload, exists, /data/logged]}", "httpGet: {path: /healthz, port: 8080}",
		"tcpSocket: {port: 8080}"}[kind]
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 2
  initContainers: [{name: init, image: example.com/workload:1, args: [print, started]}]
  containers:
  - name: app
    image: example.com/workload:1
    args: [log, "100", "200", "20", then, write, /data/logged, then, serve]
    readinessProbe: {periodSeconds: 1, %[2]s}
    livenessProbe: {periodSeconds: 2, timeoutSeconds: 30, failureThreshold: 10, %[2]s}
    volumeMounts: [{name: config, mountPath: /config}, {name: data, mountPath: /data}]
  - {name: side, image: example.com/workload:1, args: [sleep], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: config, configMap: {name: %[1]s}}, {name: data, emptyDir: {}}]
`, name, probe)
}

// config writes the ConfigMap of a pod.
func (k *soak) config(name, value string) {
	k.put("config-"+name, fmt.Sprintf(
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", name, value))
}

// batch starts some pods, uses them and the resident one, removes them, and waits until they have ended.
func (k *soak) batch(first int) error {
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*patience)
	defer cancel()
	var names []string
	for i := range *soakSide {
		name := fmt.Sprintf("soak-%d", first+i)
		names = append(names, name)
		k.config(name, "0")
		k.put(name, k.pod(name, k.dice.IntN(3)))
	}
	if k.cluster != nil && k.dice.IntN(4) == 0 { // while the pods start
		k.restarts++
		k.cluster.KillAPIServer()
		k.cluster.StartAPIServer()
	}
	edited := append(slices.Clone(names[:1+k.dice.IntN(*soakSide)]), "resident")
	value := fmt.Sprint(first + 1)
	var users errgroup.Group
	for _, name := range append(slices.Clone(names), "resident") {
		users.Go(func() error {
			if err := k.settles(ctx, name, true); err != nil {
				return err
			}
			return k.use(ctx, name)
		})
	}
	if err := users.Wait(); err != nil {
		return err
	}
	for _, name := range edited {
		k.config(name, value)
	}
	for _, name := range edited {
		if err := k.shows(ctx, name, value); err != nil {
			return err
		}
	}
	for _, name := range names {
		k.drop(name)
	}
	for _, name := range names {
		if err := k.settles(ctx, name, false); err != nil {
			return err
		}
	}
	return nil
}

// settles waits until a pod is ready, or until it is gone.
func (k *soak) settles(ctx context.Context, name string, ready bool) error {
	last := "never seen"
	for change, err := range k.client.WatchPods(ctx, client.Select{Namespace: "default", Name: k.full(name)}) {
		switch {
		case err != nil:
			return err
		case change.Deleted, change.Synced && last == "never seen":
			if !ready {
				return nil
			}
		case change.Synced:
		case ready && shows(change.Object, "Ready"):
			return nil
		default:
			last = describe(change.Object)
		}
	}
	return fmt.Errorf("pod %s: %s: %w", name, last, ctx.Err())
}

// handle returns the handle of a pod of the soak.
func (k *soak) handle(name string) client.Pod {
	return k.client.Pod(types.NamespacedName{Namespace: "default", Name: k.full(name)})
}

// use runs a command in a pod, and reads its log.
func (k *soak) use(ctx context.Context, name string) error {
	if _, err := k.value(ctx, name); err != nil {
		return err
	}
	var log bytes.Buffer
	options := client.LogOptions{PodLogOptions: corev1.PodLogOptions{Container: "app"}}
	if err := k.handle(name).Logs(ctx, options, &log); err != nil {
		return fmt.Errorf("read the log of pod %s: %w", name, err)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 20 {
		return fmt.Errorf("read the log of pod %s: %d lines, want 20", name, lines)
	}
	return nil
}

// value reads the value of the ConfigMap in a pod.
func (k *soak) value(ctx context.Context, name string) (string, error) {
	var out bytes.Buffer
	err := k.handle(name).Container("app").Exec(ctx, []string{"/workload", "cat", "/config/value"}, false,
		client.Streams{Out: &out, Err: io.Discard})
	return out.String(), err
}

// shows waits until a pod shows the new value of its ConfigMap.
func (k *soak) shows(ctx context.Context, name, want string) error {
	for {
		got, err := k.value(ctx, name)
		if err != nil || got == want {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s shows %q, want %q: %w", name, got, want, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// rests waits until the agent has collected its garbage after some seconds without activity. The heap and the resident
// memory then do not depend on what the last pods have left.
func (k *soak) rests() {
	k.t.Helper()
	const idle = 9 * time.Second // a little less than the agent waits
	earliest := time.Now().Add(idle)
	if !repeat(time.Second, patience, func() bool {
		return k.metrics()["go_memstats_last_gc_time_seconds"] > float64(earliest.Unix())
	}) {
		k.t.Fatalf("the agent collected no garbage in %v", patience)
	}
}

// sample returns a row of the table.
func (k *soak) sample(pods int, since time.Duration) []float64 {
	k.t.Helper()
	metrics := k.metrics()
	proc := fmt.Sprintf("/proc/%d/", k.agent.Process.Pid)
	descriptors, err := os.ReadDir(proc + "fd")
	check(k.t, err)
	table, err := os.ReadFile(proc + "mountinfo")
	check(k.t, err)
	mounts, namespaces := 0, 0
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, k.root+"/") {
			mounts++
			if strings.Contains(line, "/netns/") {
				namespaces++
			}
		}
	}
	cgroups := 0
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*" + k.cgroup())
	check(k.t, err)
	for _, dir := range append(hierarchies, "/sys/fs/cgroup"+k.cgroup()) {
		paths, _ := usage(k.t, dir)
		cgroups += len(paths)
	}
	network := fmt.Sprintf("berth_%x", sha256.Sum256([]byte(k.root)))[:len("berth_")+8] + "_pods"
	elements, err := exec.CommandContext(k.t.Context(), "nft", "list", "table", "inet", network).CombinedOutput()
	check(k.t, err)
	resident, _ := k.resident()
	runtime := filepath.Join(k.root, "runtime")
	// The shim keeps the exits of deleted containers for a minute: their number follows the rate of pods.
	files, disk := usage(k.t, k.root, runtime, filepath.Join(k.root, "run/runtime/exits"))
	k.remember(files)
	runtimeFiles, runtimeDisk := usage(k.t, runtime)
	return []float64{float64(pods), since.Seconds(), metrics["go_goroutines"], float64(len(descriptors)),
		metrics["go_memstats_heap_alloc_bytes"] / 1e6, resident, float64(mounts), float64(namespaces), float64(cgroups),
		float64(strings.Count(string(elements), "comment")), disk, float64(len(files)), runtimeDisk,
		float64(len(runtimeFiles))}
}

// remember updates since when each file of the root is there. It is called for each sample.
func (k *soak) remember(paths []string) {
	before := k.since
	k.since = map[string]int{}
	for _, path := range paths {
		first, there := before[path]
		if !there {
			first = len(k.table.Rows)
		}
		k.since[path] = first
	}
}

// stayed lists the files of the root that came after the warm-up and stayed for soakStays pods.
func (k *soak) stayed() (paths []string) {
	rows := k.table.Rows
	for path, first := range k.since {
		if first > k.table.Warm && rows[len(rows)-1][0]-rows[first][0] >= soakStays {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// metrics reads the samples without labels of the agent's metrics.
func (k *soak) metrics() map[string]float64 {
	k.t.Helper()
	text, err := readMetrics(k.t.Context(), k.root)
	check(k.t, err)
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		var name string
		var value float64
		if n, _ := fmt.Sscan(line, &name, &value); n == 2 {
			values[name] = value
		}
	}
	return values
}

// usage lists the files below a directory, and returns their size on disk in MB. It leaves out some directories, what
// is on other file systems, and files that go meanwhile.
func usage(t *testing.T, dir string, except ...string) (paths []string, mb float64) {
	t.Helper()
	var device uint64
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
		stat, _ := info.Sys().(*syscall.Stat_t)
		if path == dir {
			device = stat.Dev
		}
		if slices.Contains(except, path) || stat.Dev != device {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasPrefix(dir, "/sys/fs/cgroup") || entry.IsDir() {
			paths = append(paths, path)
		}
		mb += float64(stat.Blocks) * 512 / 1e6
		return nil
	})
	check(t, err)
	return paths, mb
}

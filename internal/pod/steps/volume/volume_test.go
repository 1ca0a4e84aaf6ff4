package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/emptydir"
	"github.com/berth-run/berth/internal/pod/steps/volume/hostpath"
	"github.com/berth-run/berth/internal/pod/worker"
)

type recorded struct {
	mu   sync.Mutex
	list []string
}

func (r *recorded) Event(_ corev1.ObjectReference, _, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, reason+": "+fmt.Sprintf(format, args...))
}

// node is Volumes in a temporary root. At the end of the test, nothing below it stays mounted.
func node(t *testing.T) (v *volume.Volumes, root string, events *recorded) {
	t.Helper()
	roottest.Need(t, "mounting")
	root, events = t.TempDir(), &recorded{}
	t.Cleanup(func() {
		if err := volume.Unmount(root); err != nil {
			t.Error(err)
		}
	})
	return again(root, events), root, events
}

func again(root string, events *recorded) *volume.Volumes {
	memory := emptydir.Kind{Allocatable: 1 << 30, Limits: memoryLimit(0)}
	return volume.New(volume.Config{Root: root, Kinds: []volume.Kind{memory, hostpath.Kind{}}, Events: events})
}

func emptyDir(name string, medium corev1.StorageMedium) corev1.Volume {
	return corev1.Volume{Name: name,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}
}

func hostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name,
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// run is a pod with one container, which mounts all volumes except those named "unused".
func run(volumes ...corev1.Volume) *worker.Run {
	c := corev1.Container{Name: "app"}
	for _, v := range volumes {
		if v.Name != "unused" {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
		}
	}
	return &worker.Run{Pod: &pod.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app", UID: "u1"},
		Spec:       corev1.PodSpec{Volumes: volumes, Containers: []corev1.Container{c}},
	}}}
}

// below lists all entries of a directory, at any depth.
func below(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		found = append(found, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found[1:]
}

func TestVolumesAreMountedAndRemovedByARestartedAgent(t *testing.T) {
	v, root, events := node(t)
	host := t.TempDir()
	r := run(emptyDir("disk", ""), emptyDir("memory", "Memory"), hostPath("host", host, corev1.HostPathDirectory),
		hostPath("unused", "/nowhere", corev1.HostPathDirectory))
	for range 2 {
		if err := v.Step().Setup(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	pods := filepath.Join(root, "pods/u1/volumes/kubernetes.io~empty-dir")
	got := map[string]string{}
	for _, name := range []string{"disk", "memory", "host", "unused"} {
		if path, ok := v.Path("u1", name); ok {
			got[name] = path
		}
	}
	want := map[string]string{"disk": filepath.Join(pods, "disk"), "memory": filepath.Join(pods, "memory"),
		"host": host}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("paths (-want +got):\n%s", d)
	}
	for _, dir := range want {
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	// A restarted agent, without memory of the pod, removes it.
	v = again(root, events)
	for range 2 {
		if err := v.Step().Teardown(t.Context(),
			&worker.Run{Pod: &pod.Pod{Pod: &corev1.Pod{ObjectMeta: r.Pod.ObjectMeta}}}); err != nil {
			t.Fatal(err)
		}
	}
	if left := below(t, filepath.Join(root, "pods/u1/volumes")); !slices.Equal(left,
		[]string{"kubernetes.io~empty-dir"}) {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(host, "file")); err != nil {
		t.Errorf("the host's file: %v", err)
	}
	if len(events.list) > 0 {
		t.Errorf("events: %v", events.list)
	}
}

func TestVolumeOfEnvironmentFilesIsMounted(t *testing.T) {
	v, root, _ := node(t)
	r := run(emptyDir("unused", ""))
	r.Pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "PLAIN", Value: "1"},
		{Name: "TOKEN",
			ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "unused", Path: "env",
				Key: "TOKEN"}}},
	}
	if err := v.Step().Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want := map[string]pod.Volume{"unused": {Path: filepath.Join(root,
		"pods/u1/volumes/kubernetes.io~empty-dir/unused")}}
	got := v.Mounted("u1")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("mounted (-want +got):\n%s", d)
	}
}

func TestSetupMountsOtherVolumesAfterAFailure(t *testing.T) {
	v, root, events := node(t)
	missing := filepath.Join(root, "socket")
	r := run(emptyDir("disk", ""), hostPath("docker", missing, corev1.HostPathSocket), corev1.Volume{Name: "claim"})
	err := v.Step().Setup(t.Context(), r)
	if got := reason.Of(err); got != reason.FailedMount {
		t.Errorf("reason %q of %v", got, err)
	}
	want := `mount volume "docker": hostPath type check failed: ` + missing + ` is not a socket file: no such file
mount volume "claim": this agent does not mount the volume's source`
	if d := cmp.Diff(want, reason.Message(err)); d != "" {
		t.Errorf("error (-want +got):\n%s", d)
	}
	slices.Sort(events.list)
	wantEvents := []string{
		`FailedMount: MountVolume.SetUp failed for volume "claim" : this agent does not mount the volume's source`,
		`FailedMount: MountVolume.SetUp failed for volume "docker" : hostPath type check failed: ` + missing +
			` is not a socket file: no such file`,
	}
	if d := cmp.Diff(wantEvents, events.list); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if _, ok := v.Path("u1", "disk"); !ok {
		t.Error("the other volume is not mounted")
	}
	if _, ok := v.Path("u1", "docker"); ok {
		t.Error("the volume that failed has a path")
	}
}

func TestRemoveNamesTheHolderOfABusyMount(t *testing.T) {
	v, root, _ := node(t)
	r := run(emptyDir("memory", "Memory"))
	if err := v.Step().Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	path, _ := v.Path("u1", "memory")
	f, err := os.Create(filepath.Join(path, "held"))
	if err != nil {
		t.Fatal(err)
	}
	err = v.Step().Teardown(t.Context(), r)
	comm, _ := os.ReadFile("/proc/self/comm")
	want := fmt.Sprintf(
		`unmount volume "memory": unmount %s: device or resource busy: held by process %d (%s) by its open file %s`,
		path, os.Getpid(), strings.TrimSpace(string(comm)), f.Name())
	if err == nil || err.Error() != want || !errors.Is(err, unix.EBUSY) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	f.Close()
	if err := v.Step().Teardown(t.Context(), r); err != nil {
		t.Errorf("removal after the file was closed: %v", err)
	}
	if left := below(t, filepath.Join(root, "pods/u1/volumes")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestRemoveKeepsContentOfUnknownKinds(t *testing.T) {
	v, root, _ := node(t)
	dir := filepath.Join(root, "pods/u1/volumes/kubernetes.io~nfs")
	data := filepath.Join(dir, "data/content")
	if err := errors.Join(os.MkdirAll(data, 0o755), os.MkdirAll(filepath.Join(dir, "mounted"), 0o755)); err != nil {
		t.Fatal(err)
	}
	share := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(share, "precious"), nil, 0o600),
		unix.Mount(share, filepath.Join(dir, "mounted"), "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	err := v.Remove(t.Context(), "u1")
	if err == nil ||
		!strings.Contains(err.Error(),
			`unmount volume "data": the volume is of the kind kubernetes.io~nfs, which this agent does not have`) {
		t.Errorf("got %v", err)
	}
	if left := below(t, dir); !slices.Equal(left, []string{"data", "data/content"}) {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(share, "precious")); err != nil {
		t.Error(err)
	}
}

func TestNamesThatArePathsAreRefused(t *testing.T) {
	v, _, _ := node(t)
	if err := v.Step().Setup(t.Context(), run(emptyDir("../../../escape", ""))); err == nil ||
		!strings.Contains(err.Error(), "cannot be the name of a file") {
		t.Errorf("volume name: %v", err)
	}
	r := run(emptyDir("disk", ""))
	r.Pod.UID = "../u1"
	if err := v.Step().Setup(t.Context(), r); err == nil || !strings.Contains(err.Error(), "UID") {
		t.Errorf("UID at setup: %v", err)
	}
	if err := v.Remove(context.Background(), "../u1"); err == nil {
		t.Error("UID at removal: no error")
	}
}

// memoryLimit is the limit of every pod. It implements emptydir.Limits.
type memoryLimit int64

func (m memoryLimit) Memory(*corev1.Pod) int64 { return int64(m) }

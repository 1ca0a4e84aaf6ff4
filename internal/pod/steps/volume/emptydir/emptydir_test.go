package emptydir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

const group = int64(4711)

func needRoot(t *testing.T) {
	t.Helper()
	roottest.Need(t, "mounting")
}

// request is for a volume in a temporary directory. The volume is unpublished when the test ends.
func request(t *testing.T, k Kind, source corev1.EmptyDirVolumeSource, fsGroup *int64) volume.Request {
	t.Helper()
	target := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() {
		for range 2 { // idempotent
			if err := k.Unpublish(context.Background(), target); err != nil {
				t.Error(err)
			}
		}
	})
	return volume.Request{
		Pod:    &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{FSGroup: fsGroup}}},
		Volume: &corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &source}},
		Target: target,
	}
}

type look struct {
	mode os.FileMode
	gid  uint32
}

func at(t *testing.T, path string) look {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return look{info.Mode(), info.Sys().(*syscall.Stat_t).Gid}
}

func TestPublish(t *testing.T) {
	needRoot(t)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	k := Kind{Allocatable: 1 << 30, Limits: memoryLimit(8 << 20)}
	tests := map[string]struct {
		source  corev1.EmptyDirVolumeSource
		fsGroup *int64
		want    look
		size    int64 // of the volume's own file system; 0 for none
	}{
		"disk": {corev1.EmptyDirVolumeSource{}, nil, look{os.ModeDir | 0o777, 0}, 0},
		"disk of a group": {corev1.EmptyDirVolumeSource{}, new(group),
			look{os.ModeDir | os.ModeSetgid | 0o777, uint32(group)}, 0},
		"disk of a mode": {corev1.EmptyDirVolumeSource{Mode: new(int32(0o700))}, nil, look{os.ModeDir | 0o700, 0},
			0},
		"a mode and a group": {corev1.EmptyDirVolumeSource{Mode: new(int32(0o1705))}, new(group),
			look{os.ModeDir | os.ModeSetgid | os.ModeSticky | 0o775, uint32(group)}, 0},
		"memory of a mode": {corev1.EmptyDirVolumeSource{Medium: "Memory", Mode: new(int32(0o755))}, nil,
			look{os.ModeDir | 0o755, 0}, 8 << 20},
		"memory": {corev1.EmptyDirVolumeSource{Medium: "Memory"}, nil,
			look{os.ModeDir | os.ModeSticky | 0o777, 0}, 8 << 20},
		"memory with a limit": {corev1.EmptyDirVolumeSource{Medium: "Memory",
			SizeLimit: new(resource.MustParse("1Mi"))}, nil, look{os.ModeDir | os.ModeSticky | 0o777, 0}, 1 << 20},
		"memory of a group": {corev1.EmptyDirVolumeSource{Medium: "Memory"}, new(group),
			look{os.ModeDir | os.ModeSticky | os.ModeSetgid | 0o777, uint32(group)}, 8 << 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := request(t, k, test.source, test.fsGroup)
			for range 2 { // idempotent: the second call finds the file
				got, err := k.Publish(t.Context(), r)
				if err != nil || got != r.Target {
					t.Fatalf("got %s, %v", got, err)
				}
				if got := at(t, r.Target); got != test.want {
					t.Errorf("got %v, want %v", got, test.want)
				}
				if err := os.WriteFile(filepath.Join(r.Target, "file"), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var st unix.Statfs_t
			if err := unix.Statfs(r.Target, &st); err != nil {
				t.Fatal(err)
			}
			own, err := volume.Mounted(r.Target, unix.TMPFS_MAGIC)
			if test.size == 0 {
				if own {
					t.Error("a tmpfs is mounted on it")
				}
			} else if size := int64(st.Blocks) * st.Bsize; err != nil || !own || size != test.size {
				t.Errorf("mounted %v, %v, size %d, want %d", own, err, size, test.size)
			}
		})
	}
}

func TestPublishKeepsWhatThePodChanged(t *testing.T) {
	needRoot(t)
	k := Kind{}
	r := request(t, k, corev1.EmptyDirVolumeSource{}, new(group))
	if _, err := k.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(r.Target, 1000, 1000), os.Chmod(r.Target, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got, want := at(t, r.Target), (look{os.ModeDir | 0o700, 1000}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTmpfsIsNoswapWhereTheKernelSupportsIt(t *testing.T) {
	needRoot(t)
	k := Kind{Limits: memoryLimit(0)}
	r := request(t, k, corev1.EmptyDirVolumeSource{Medium: "Memory"}, nil)
	if _, err := k.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := mount(filepath.Join(t.TempDir(), "x"), "tmpfs", unix.TMPFS_MAGIC, 0o755,
		[]option{{"noswap", "", false}, {"nosuchoption", "1", false}}); err == nil ||
		!strings.Contains(err.Error(), "nosuchoption") {
		t.Skipf("this kernel has no noswap: %v", err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, " "+r.Target+" ") {
			if !strings.Contains(line, "noswap") {
				t.Errorf("without noswap: %s", line)
			}
			return
		}
	}
	t.Error("it is not in the mount table")
}

func TestHugePages(t *testing.T) {
	needRoot(t)
	sys := t.TempDir()
	for name, n := range map[string]string{"hugepages-2048kB/nr_hugepages": "4",
		"hugepages-2048kB/nr_overcommit_hugepages": "0", "hugepages-1048576kB/nr_hugepages": "0",
		"hugepages-1048576kB/nr_overcommit_hugepages": "0"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(sys, name)), 0o755),
			os.WriteFile(filepath.Join(sys, name), []byte(n+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	k := Kind{HugePages: sys}
	limit := new(resource.MustParse("4Mi"))
	r := request(t, k, corev1.EmptyDirVolumeSource{Medium: "HugePages", SizeLimit: limit}, new(group))
	r.Pod.Spec.Containers = requesting("1Gi", "2Mi").Spec.Containers
	if _, err := k.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	mounted, err := volume.Mounted(r.Target, unix.HUGETLBFS_MAGIC)
	var st unix.Statfs_t
	if err := errors.Join(err, unix.Statfs(r.Target, &st)); err != nil || !mounted || st.Bsize != 2<<20 ||
		st.Blocks != 2 {
		t.Errorf("mounted %v, %v, %d pages of %d", mounted, err, st.Blocks, st.Bsize)
	}
	if got, want := at(t, r.Target), (look{os.ModeDir | os.ModeSetgid | 0o777, uint32(group)}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for size, want := range map[string]string{
		"1Gi": "medium HugePages: this host has set aside no huge pages of 1Gi: write their number to " + sys +
			"/hugepages-1048576kB/nr_hugepages",
		"16Mi": "medium HugePages: this host has no huge pages of 16Mi",
	} {
		r := request(t, k, corev1.EmptyDirVolumeSource{Medium: "HugePages"}, nil)
		r.Pod.Spec.InitContainers = requesting(size).Spec.InitContainers
		if _, err := k.Publish(t.Context(), r); err == nil || err.Error() != want {
			t.Errorf("pages of %s: %v, want %s", size, err, want)
		}
	}
}

func TestPublishRefuses(t *testing.T) {
	needRoot(t)
	k := Kind{Limits: memoryLimit(0)}
	r := request(t, k, corev1.EmptyDirVolumeSource{Medium: "Floppy"}, nil)
	if _, err := k.Publish(t.Context(), r); err == nil || !strings.Contains(err.Error(), "Floppy") {
		t.Errorf("unknown medium: %v", err)
	}
	r = request(t, k, corev1.EmptyDirVolumeSource{Mode: new(int32(0o2777))}, nil)
	if _, err := k.Publish(t.Context(), r); err == nil || err.Error() != "mode 02777 is not between 0 and 01777" {
		t.Errorf("a mode that is too much: %v", err)
	}
	r = request(t, k, corev1.EmptyDirVolumeSource{Medium: "Memory"}, nil)
	if err := mount(r.Target, "ramfs", 0x858458f6, 0o755, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Publish(t.Context(), r); err == nil || !strings.Contains(err.Error(), "another type") {
		t.Errorf("something else is mounted there: %v", err)
	}
}

// memoryLimit is the limit of every pod. It implements Limits.
type memoryLimit int64

func (m memoryLimit) Memory(*corev1.Pod) int64 { return int64(m) }

package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/worker"
)

// data makes a pod with a mounted emptyDir, and a directory outside of it with a secret.
func data(t *testing.T) (v *volume.Volumes, r *worker.Run, path, outside string) {
	t.Helper()
	v, _, _ = node(t)
	r = run(emptyDir("data", ""))
	if err := v.Step().Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	path, _ = v.Path("u1", "data")
	outside = t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return v, r, path, outside
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
		os.WriteFile(name, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestSubPathIsBound(t *testing.T) {
	v, r, path, _ := data(t)
	write(t, filepath.Join(path, "real/conf"), "one")
	if err := os.Symlink("real", filepath.Join(path, "alias")); err != nil {
		t.Fatal(err)
	}
	for sub, file := range map[string]string{"real": "conf", "alias": "conf", "real/conf": "", "alias/conf": "",
		"./real//": "conf"} {
		for range 2 {
			got, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 0, sub)
			if err != nil {
				t.Errorf("%s: %v", sub, err)
				continue
			}
			if want := filepath.Join(filepath.Dir(path), "../../volume-subpaths/data/app/0"); got != want {
				t.Errorf("%s: %s, want %s", sub, got, want)
			}
			if content := read(t, filepath.Join(got, file)); content != "one" {
				t.Errorf("%s: content %q", sub, content)
			}
		}
	}
	// Only the last bind mount exists: each replaced the one before.
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(table), "volume-subpaths/data/app/0"); n != 1 {
		t.Errorf("%d mounts at the same place", n)
	}
	if err := v.Step().Teardown(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(path), "../../volume-subpaths")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("volume-subpaths is still there: %v", err)
	}
}

func TestSubPathCreatesMissingDirectories(t *testing.T) {
	v, r, path, _ := data(t)
	got, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 0, "new/deep")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(got, "file"), "x")
	if content := read(t, filepath.Join(path, "new/deep/file")); content != "x" {
		t.Errorf("content %q", content)
	}
	if info, err := os.Stat(filepath.Join(path, "new")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("mode %v, %v, want the volume's", info.Mode(), err)
	}
}

func TestReplacedSubPathIsBoundAgain(t *testing.T) {
	v, r, path, _ := data(t)
	write(t, filepath.Join(path, "d/file"), "old")
	if _, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 0, "d"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(path, "d")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "d/file"), "new")
	r.Pod.Spec.Containers[0].VolumeMounts[0].ReadOnly = true
	got, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 0, "d")
	if err != nil {
		t.Fatal(err)
	}
	if content := read(t, filepath.Join(got, "file")); content != "new" {
		t.Errorf("content %q, want the new directory's", content)
	}
	if err := os.WriteFile(filepath.Join(got, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write to a read-only mount: %v", err)
	}
}

func TestSubPathStaysInside(t *testing.T) {
	v, r, path, outside := data(t)
	rel, err := filepath.Rel(path, outside)
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"absolute": outside, "relative": rel, "file": filepath.Join(outside, "secret"), "proc": "/proc/self/root",
		"fd": "/proc/self/fd", "self": path, "dangling": "nowhere", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{
		"absolute", "absolute/secret", "absolute/new", "relative", "relative/secret", "relative/new/deep", "file",
		"proc/etc", "fd/0", "self", "dangling", "dangling/x", "loop",
		"..", "../data", "a/../../x", outside, "/",
	} {
		if got, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 0, sub); err == nil {
			t.Errorf("%s: bound on %s", sub, got)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("the outside was written to: %v, %v", entries, err)
	}
	if _, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 0, "absolute"); !errors.Is(err, safepath.ErrEscape) {
		t.Errorf("got %v, want ErrEscape", err)
	}
	if _, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 1, "x"); err == nil ||
		!strings.Contains(err.Error(), "no volume mount 1") {
		t.Errorf("a volumeMount that does not exist: %v", err)
	}
}

// A hostPath is mounted by its path only where a bind mount would keep the host from unmounting something.
func TestHostPathIsMountedByDescriptor(t *testing.T) {
	v, root, _ := node(t)
	host := t.TempDir()
	for _, dir := range []string{"plain", "around/mounted", "mounted"} {
		if err := os.MkdirAll(filepath.Join(host, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"around/mounted", "mounted"} {
		at := filepath.Join(host, dir)
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	write(t, filepath.Join(host, "file"), "one")
	names := []string{"plain", "around", "mounted", "file", "none"}
	var volumes []corev1.Volume
	for _, name := range names {
		volumes = append(volumes, hostPath(name, filepath.Join(host, name), ""))
	}
	r := run(append(volumes, hostPath("root", root, ""), hostPath("above", filepath.Dir(root), ""))...)
	if err := v.Step().Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for i, m := range r.Pod.Spec.Containers[0].VolumeMounts {
		path, err := v.MountPath(t.Context(), r.Pod.Pod, "app", i, "")
		if err != nil {
			t.Fatal(err)
		}
		got[m.Name] = strings.Replace(path, filepath.Join(root, "pods/u1"), "POD", 1)
	}
	want := map[string]string{
		"plain": "POD/volume-subpaths/plain/app/0", "around": filepath.Join(host, "around"),
		"mounted": "POD/volume-subpaths/mounted/app/2",
		"file":    "POD/volume-subpaths/file/app/3", "none": "POD/volume-subpaths/none/app/4", "root": root,
		"above": filepath.Dir(root),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// The next container start shows a replaced file.
	write(t, filepath.Join(host, "new"), "two")
	if err := os.Rename(filepath.Join(host, "new"), filepath.Join(host, "file")); err != nil {
		t.Fatal(err)
	}
	if path, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 3, ""); err != nil || read(t, path) != "two" {
		t.Errorf("a replaced file: %v", err)
	}
	// The host can still remove its own mounts.
	at := filepath.Join(host, "around/mounted")
	if err := errors.Join(unix.Unmount(at, 0), os.Remove(at)); err != nil {
		t.Error(err)
	}
	if err := v.Step().Teardown(t.Context(), r); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(host, "none")); err != nil || !info.IsDir() {
		t.Errorf("the file made on the host is gone: %v", err)
	}
}

package local

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/disk"
)

// The test binary is also the child process that mounts.
func TestMain(m *testing.M) {
	if handled, code := mount.Main(os.Args, os.Stdin, os.Stdout); handled {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// loop makes a block device from a file of the given size in bytes.
func loop(t *testing.T, size int64) (device string) {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("no loop devices here")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	device = strings.TrimSpace(run(t, "losetup", "--find", "--show", file))
	t.Cleanup(func() { run(t, "losetup", "--detach", device) })
	return device
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func request(t *testing.T, device string) volume.Request {
	t.Helper()
	pv := &corev1.PersistentVolume{}
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: device}
	r := volume.Request{Persistent: pv, Stage: t.TempDir()}
	t.Cleanup(func() { _ = unix.Unmount(r.Stage, unix.MNT_DETACH) })
	return r
}

func fails(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// An empty device gets the file system that the volume names.
func TestXFS(t *testing.T) {
	roottest.Need(t, "mounting")
	if kinds, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(kinds), "\txfs\n") {
		t.Skip("the kernel has no xfs")
	}
	const least = 300 << 20 // the smallest size that mkfs.xfs accepts
	k, r := Kind{}, request(t, loop(t, least))
	r.Persistent.Spec.Local.FSType = new("xfs")
	for range 2 { // the second call finds the file system
		if err := k.Stage(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if at, err := mount.At(r.Stage); err != nil || at == nil || at.FSType != "xfs" {
			t.Errorf("mounted %+v, %v", at, err)
		}
		if err := k.Unstage(t.Context(), r.Stage); err != nil {
			t.Fatal(err)
		}
	}
}

// A device is empty, then formatted, then shared, then damaged.
func TestDevice(t *testing.T) {
	roottest.Need(t, "mounting")
	k, r := Kind{}, request(t, loop(t, 16<<20))
	r.ReadOnly = true
	fails(t, k.Stage(t.Context(), r), "has no file system, and a read-only volume is not formatted")

	r.ReadOnly = false
	for range 2 { // the second call finds the mount
		if err := k.Stage(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	path, err := k.Publish(t.Context(), r)
	if err != nil || path != r.Stage {
		t.Fatalf("published %q, %v", path, err)
	}
	if f, err := k.Open(r); f != nil || err != nil {
		t.Errorf("opened %v, %v", f, err)
	}
	if at, err := mount.At(path); err != nil || at == nil || at.FSType != "ext4" {
		t.Errorf("mounted %+v, %v", at, err)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(filepath.Join(path, "file"))
	if err != nil {
		t.Fatal(err)
	}
	fails(t, k.Unstage(t.Context(), r.Stage), "held by process")
	held.Close()
	if err := k.Unstage(t.Context(), r.Stage); err != nil {
		t.Fatal(err)
	}

	// The mount is read-only for a user that only reads, until another user writes.
	r.ReadOnly = true
	if err := k.Stage(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "more"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("wrote: %v", err)
	}
	r.ReadOnly = false
	if err := k.Stage(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "more"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(path, "file")); string(text) != "kept" {
		t.Errorf("it was formatted again: %q, %v", text, err)
	}
	if err := k.Unstage(t.Context(), r.Stage); err != nil {
		t.Fatal(err)
	}

	// A volume that is read-only, with mount options.
	r.Persistent.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	r.Persistent.Spec.MountOptions = []string{"noatime"}
	if err := k.Stage(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	at, err := mount.At(r.Stage)
	if err != nil || !strings.Contains(at.Options, "ro") || !strings.Contains(at.Options, "noatime") {
		t.Errorf("mounted %+v, %v", at, err)
	}
	if err := k.Unstage(t.Context(), r.Stage); err != nil {
		t.Fatal(err)
	}
	r.Persistent.Spec.AccessModes, r.Persistent.Spec.MountOptions = nil, nil

	// The device has another file system than the volume names.
	r.Persistent.Spec.Local.FSType = new("xfs")
	fails(t, k.Stage(t.Context(), r), "has other content than the volume's fsType, and is left as it is")
	r.Persistent.Spec.Local.FSType = nil

	// Damage that fsck can repair is repaired; other damage is an error.
	device := r.Persistent.Spec.Local.Path
	free(t, device)
	run(t, "debugfs", "-w", "-R", "set_super_value state 2", device)
	if err := k.Stage(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := k.Unstage(t.Context(), r.Stage); err != nil {
		t.Fatal(err)
	}
	free(t, device)
	run(t, "debugfs", "-w", "-R", "clri <2>", device) // the superblock says "clean", so that fsck -a looks no further
	fails(t, k.Stage(t.Context(), r), "is damaged, and the kernel does not mount it: repair it by hand")
	run(t, "debugfs", "-w", "-R", "set_super_value state 2", device)
	fails(t, k.Stage(t.Context(), r), "is damaged, and fsck -a cannot repair it: repair it by hand")
}

// free waits until no mount of the device is left in any mount namespace. A process that another test starts at the
// moment of an unmount has a copy of the mount, and the end of the last copy writes the superblock.
func free(t *testing.T, device string) {
	t.Helper()
	eventually.True(t, "no mount of "+device, func() bool {
		f, err := os.OpenFile(device, os.O_RDWR|os.O_EXCL, 0)
		if errors.Is(err, unix.EBUSY) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		return true
	})
}

func TestMountRefusesOtherDevices(t *testing.T) {
	roottest.Need(t, "mounting")
	device := loop(t, 16<<20)
	k, r := Kind{}, request(t, device)
	r.Persistent.Spec.Local.FSType = new("../ext4")
	fails(t, k.Stage(t.Context(), r), `fsType "../ext4"`)
	r.Persistent.Spec.Local.FSType = new("nosuch")
	fails(t, k.Stage(t.Context(), r), "mkfs.nosuch is not installed, and "+device+" needs it: install it")
	r.Persistent.Spec.Local.FSType = nil

	none := Kind{Formatter: disk.Formatter{Exec: empty{utilexec.New()}}}
	fails(t, none.Stage(t.Context(), r),
		"blkid is not installed, and "+device+" needs it: install it (util-linux)")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the pod is to stop"))
	fails(t, k.Stage(ctx, r), "the pod is to stop")

	table := make([]byte, 512)
	table[446+4], table[446+8], table[446+12] = 0x83, 1, 8 // one partition
	table[510], table[511] = 0x55, 0xaa
	if err := os.WriteFile(device, table, 0); err != nil {
		t.Fatal(err)
	}
	fails(t, k.Stage(t.Context(), r), "has a partition table")
	r.Persistent.Spec.Local.FSType = new("ext4")
	fails(t, k.Stage(t.Context(), r), "is left as it is")
	if at, err := mount.At(r.Stage); at != nil || err != nil {
		t.Errorf("mounted %+v, %v", at, err)
	}
}

// empty is a machine without any installed program.
type empty struct{ utilexec.Interface }

func (empty) LookPath(string) (string, error) { return "", utilexec.ErrExecutableNotFound }

func (e empty) CommandContext(ctx context.Context, name string, args ...string) utilexec.Cmd {
	return e.Interface.CommandContext(ctx, "/nowhere/"+name, args...)
}

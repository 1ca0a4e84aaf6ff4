package volume_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume/ownership"
)

// swapEnv makes the test binary a process that exchanges two names until its standard input ends. Then it prints the
// number of exchanges.
const swapEnv = "BERTH_TEST_SWAP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(swapEnv); dir != "" {
		swap(dir)
		return
	}
	if how := os.Getenv(holdEnv); how != "" {
		if err := hold(how); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func swap(dir string) {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for n := 0; ; n++ {
		select {
		case <-ended:
			_, _ = os.Stdout.WriteString(strconv.Itoa(n) + "\n")
			return
		default:
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "d"), unix.AT_FDCWD, filepath.Join(dir, "evil"),
				unix.RENAME_EXCHANGE)
		}
	}
}

// attack calls attempt many times while another process exchanges dir/d and dir/evil. attempt reports whether it
// succeeded. The test fails unless some attempts succeed and some fail.
func attack(t *testing.T, dir string, times int, attempt func(i int) bool) {
	t.Helper()
	swapper := exec.Command(os.Args[0]) //nolint:gosec // this test
	swapper.Env = append(os.Environ(), swapEnv+"="+dir)
	stop, err := swapper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := swapper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := swapper.Start(); err != nil {
		t.Fatal(err)
	}
	through, refused := 0, 0
	// The loop continues until one attempt has passed and one was refused: both need the other process to run.
	for i := 0; i < times || (through == 0 || refused == 0) && i < 100*times; i++ {
		if attempt(i) {
			through++
		} else {
			refused++
		}
	}
	_ = stop.Close()
	swaps, _ := bufio.NewReader(out).ReadString('\n')
	if err := swapper.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d through, %d refused, swaps: %s", through, refused, swaps)
	if through == 0 || refused == 0 {
		t.Error("the exchanges raced no attempt")
	}
}

func untouched(t *testing.T, outside string) {
	t.Helper()
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 || read(t, filepath.Join(outside, "secret")) != "secret" {
		t.Errorf("the directory outside has changed: %v, %v", entries, err)
	}
}

// CVE-2021-25741: a directory of the volume turns into a link to the outside and back while a subPath is bound.
func TestSubPathStaysInsideDuringSwaps(t *testing.T) {
	v, r, path, outside := data(t)
	write(t, filepath.Join(path, "d/secret"), "harmless")
	if err := os.Symlink(outside, filepath.Join(path, "evil")); err != nil {
		t.Fatal(err)
	}
	attack(t, path, 1000, func(i int) bool {
		sub := []string{"d", "d/s" + strconv.Itoa(i%3), "d/secret"}[i%3]
		got, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 0, sub)
		if err != nil {
			return false
		}
		switch sub {
		case "d":
			got = filepath.Join(got, "secret")
		case "d/secret":
		default:
			write(t, filepath.Join(got, "mark"), "x")
			return true
		}
		if content := read(t, got); content != "harmless" {
			t.Fatalf("%s shows %q", sub, content)
		}
		return true
	})
	untouched(t, outside)
}

// The path of a hostPath changes to another type of file after its type was checked.
func TestHostPathKeepsItsTypeDuringSwaps(t *testing.T) {
	tests := map[string]struct {
		kind corev1.HostPathType
		good os.FileMode // the only type that may be mounted
		evil func(t *testing.T, name, outside string) error
	}{
		"a link of proc": {corev1.HostPathDirectory, os.ModeDir, func(_ *testing.T, name, _ string) error {
			return os.Symlink("/proc/self/root", name)
		}},
		"a file": {corev1.HostPathDirectory, os.ModeDir, func(_ *testing.T, name, _ string) error {
			return os.WriteFile(name, nil, 0o600)
		}},
		"a pipe": {corev1.HostPathDirectory, os.ModeDir, func(_ *testing.T, name, _ string) error {
			return unix.Mkfifo(name, 0o600)
		}},
		"a link to nothing": {corev1.HostPathDirectoryOrCreate, os.ModeDir, func(_ *testing.T, name, _ string) error {
			return os.Symlink("/proc/self/fd/nowhere", name)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v, _, _ := node(t)
			dir := t.TempDir()
			write(t, filepath.Join(dir, "d/mine"), "")
			r := run(hostPath("host", filepath.Join(dir, "d"), test.kind))
			if err := v.Step().Setup(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := test.evil(t, filepath.Join(dir, "evil"), dir); err != nil {
				t.Fatal(err)
			}
			attack(t, dir, 500, func(int) bool {
				got, err := v.MountPath(t.Context(), r.Pod.Pod, "app", 0, "")
				if err != nil {
					return false
				}
				info, err := os.Stat(got)
				if err != nil || info.Mode().Type() != test.good {
					t.Fatalf("%s shows %v, %v", got, info, err)
				}
				if _, err := os.Stat(filepath.Join(got, "mine")); err != nil {
					t.Fatalf("the mount shows another directory: %v", err)
				}
				return true
			})
		})
	}
}

// A directory turns into a link to the outside while the volume's files are given to a group.
func TestOwnershipStaysInsideDuringSwaps(t *testing.T) {
	_, _, path, outside := data(t)
	for i := range 50 {
		write(t, filepath.Join(path, "d", strconv.Itoa(i), "secret"), "")
	}
	if err := errors.Join(os.Symlink(outside, filepath.Join(path, "evil")),
		os.Mkdir(filepath.Join(outside, "0"), 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(outside, "0/secret"), "")
	group := func(name string) uint32 {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Gid
	}
	attack(t, path, 200, func(i int) bool {
		root, err := safepath.Host(path)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		walk := &ownership.Walk{}
		if err := walk.Run(t.Context(), root, ownership.Want{Group: int64(5000 + i)}); err != nil {
			t.Fatal(err)
		}
		return walk.Seen() > 100 // the walk has entered the directory
	})
	for _, name := range []string{"", "secret", "0", "0/secret"} {
		if gid := group(filepath.Join(outside, name)); gid != 0 {
			t.Errorf("%s of the outside was given to group %d", name, gid)
		}
	}
}

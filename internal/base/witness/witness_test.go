package witness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/roottest"
)

// looksAt makes the test binary look at a path when its standard input has ended.
const looksAt = "BERTH_TEST_LOOKS_AT"

func TestMain(m *testing.M) {
	path := os.Getenv(looksAt)
	if path == "" {
		os.Exit(m.Run())
	}
	Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
	_, err := os.Stat(path)
	fmt.Fprintln(os.Stderr, err)
}

// A thread that waits behind another process that looks at the same file cannot end. Its process was killed all the
// same, and the witness shows it.
func TestWitnessEndsInAProcessThatCannotEnd(t *testing.T) {
	roottest.Need(t, "a mount")
	file := filepath.Join(t.TempDir(), "hangs", "file")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	release, err := roottest.Hang(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	first, second := exec.Command("stat", file), exec.Command("/proc/self/exe")
	second.Env = append(os.Environ(), looksAt+"="+file)
	input, err := second.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Start(), second.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := release(); err != nil {
			t.Error(err)
		}
		_, _ = first.Process.Wait()
		_, _ = second.Process.Wait()
	}()
	var witness *os.File
	eventually.True(t, "the witness is there", func() bool {
		witness, err = Open(second.Process.Pid)
		return err == nil
	})
	defer witness.Close()
	eventually.True(t, "the first process waits", func() bool { return waiting(first.Process.Pid) })
	_ = input.Close()
	eventually.True(t, "the second process waits behind it", func() bool { return waiting(second.Process.Pid) })
	if err := second.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	const late = time.Minute
	if err := errors.Join(witness.SetReadDeadline(time.Now().Add(late)), Await(witness)); err != nil {
		t.Error(err)
	}
	if !waiting(second.Process.Pid) {
		t.Error("the process has ended, so the test has shown nothing")
	}
}

// waiting reports whether a thread of a process waits in the kernel without regard of most signals.
func waiting(pid int) bool {
	threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/status"))
	for _, file := range threads {
		status, _ := os.ReadFile(file)
		if strings.Contains(string(status), "State:\tD") {
			return true
		}
	}
	return false
}

func TestOpenWithoutWitness(t *testing.T) {
	if _, err := Open(unix.Getppid()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("opened a process without a witness: %v", err)
	}
}

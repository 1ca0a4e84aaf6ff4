package orphan

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Scripts of programs. Both print a line when they are ready. The second one has a child with its own arguments, as
// each child has before it executes a program.
const waits, works = `echo; read x`, `exec 3<&0; { echo; read -u 3 x; } & wait`

// TestEndShims runs programs with the arguments of shims: only one is of this runtime and has neither a sandbox nor a
// child.
func TestEndShims(t *testing.T) {
	const name = "containerd-shim"
	const shim = "/bin/" + name + "-0123"
	const address = "/run/berth/0123/grpc.sock"
	start := func(program, script, address, id string) *exec.Cmd {
		return run(t, "", program, "-c", script, "-namespace", "k8s.io", "-id", id, "-address", address)
	}
	orphan := start(shim, waits, address, "gone")
	start(shim, waits, address, "live")
	start(shim, waits, "/run/berth/4567/grpc.sock", "gone")
	start("/bin/other", waits, address, "gone")
	start(shim, works, address, "gone")
	ended, err := endShims(name, address, []string{"live"})
	if err != nil || !slices.Equal(ended, []int{orphan.Process.Pid}) {
		t.Errorf("ended %v, %v; want %d", ended, err, orphan.Process.Pid)
	}
}

// TestEndHolders runs programs with the arguments of holders: only one is of this runtime and has no sandbox.
func TestEndHolders(t *testing.T) {
	const program = "/root/bin/holder"
	dir := t.TempDir()
	for _, id := range []string{"gone", "live"} { // the first argument of bash is a script
		if err := os.WriteFile(filepath.Join(dir, id), []byte(waits), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	orphan := run(t, dir, program, "gone", "n4")
	run(t, dir, program, "live", "n4")
	run(t, dir, "/other/bin/holder", "gone", "n4")
	ended, err := endHolders(program, []string{"live"})
	if err != nil || !slices.Equal(ended, []int{orphan.Process.Pid}) {
		t.Errorf("ended %v, %v; want %d", ended, err, orphan.Process.Pid)
	}
}

// run runs bash with these arguments and a program's name until the test ends. It waits until the script is ready.
func run(t *testing.T, dir, program string, args ...string) *exec.Cmd {
	t.Helper()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(shell, args...)
	cmd.Args[0], cmd.Dir, cmd.Stdout = program, dir, out
	if _, err := cmd.StdinPipe(); err != nil { // without input the script waits
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(make([]byte, 1)); err != nil { // until the script is ready
		t.Fatal(err)
	}
	return cmd
}

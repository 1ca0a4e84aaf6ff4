package orphan

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// TestEnd runs programs with the arguments of shims: only one is of this runtime and has neither a sandbox nor a
// child.
func TestEnd(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	const name = "containerd-shim"
	const shim = "/bin/" + name + "-0123"
	const address = "/run/berth/0123/grpc.sock"
	start := func(program, script, address, id string) *exec.Cmd {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(shell, "-c", script, "-namespace", "k8s.io", "-id", id, "-address", address)
		cmd.Args[0], cmd.Stdout = program, out
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
		if _, err := in.Read(make([]byte, 1)); err != nil { // until the script has said that it is ready
			t.Fatal(err)
		}
		return cmd
	}
	const waits, works = `echo; read x`, `sleep 60 & echo; wait; true`
	orphan := start(shim, waits, address, "gone")
	start(shim, waits, address, "live")
	start(shim, waits, "/run/berth/4567/grpc.sock", "gone")
	start("/bin/other", waits, address, "gone")
	start(shim, works, address, "gone")
	ended, err := End(name, address, []string{"live"})
	if err != nil || !slices.Equal(ended, []int{orphan.Process.Pid}) {
		t.Errorf("ended %v, %v; want %d", ended, err, orphan.Process.Pid)
	}
}

package process

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestIDs(t *testing.T) {
	ids, err := IDs()
	if err != nil || !slices.Contains(ids, os.Getpid()) {
		t.Errorf("%v, %v; want also this process, %d", ids, err, os.Getpid())
	}
	for _, id := range ids {
		if id <= 0 {
			t.Errorf("a process has the ID %d", id)
		}
	}
	name, err := os.ReadFile(Path(os.Getpid(), "comm"))
	if err != nil || !strings.HasPrefix(string(name), "process.test") {
		t.Errorf("this process is %q, %v", name, err)
	}
}

// A child looks like its parent until it executes a program of its own.
func TestExecutes(t *testing.T) {
	script := exec.CommandContext(t.Context(), "sh", "-c", "exec 3<&0; { read x <&3; } & echo $!; read x", "script")
	input, err := script.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := script.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(output, &child); err != nil {
		t.Fatal(err)
	}
	parent := script.Process.Pid
	if args := Arguments(parent); len(args) != 4 || args[0] != "sh" || args[3] != "script" {
		t.Errorf("arguments %q", args)
	}
	if got, err := Parent(child); err != nil || got != parent {
		t.Errorf("the parent of %d is %d, %v, want %d", child, got, err, parent)
	}
	if !Executes(parent) || Executes(child) {
		t.Errorf("the parent executes a program: %t, the child: %t", Executes(parent), Executes(child))
	}
	_ = input.Close() // ends both
	_ = script.Wait() // a read at the end of the input fails
	if args := Arguments(parent); args != nil || Executes(parent) {
		t.Errorf("a process that has ended has the arguments %q", args)
	}
	if _, err := Parent(parent); !os.IsNotExist(err) {
		t.Errorf("the parent of a process that has ended: %v", err)
	}
}

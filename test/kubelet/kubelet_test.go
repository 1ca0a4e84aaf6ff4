package kubelet

import (
	"bytes"
	"os"
	"testing"
)

// The last kubelet that ends undoes the changes of the machine.
func TestLastKubeletRestoresTheMachine(t *testing.T) {
	const path = "/proc/sys/kernel/keys/root_maxbytes"
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(path, was, 0o644) })
	var restores []func()
	for range 2 {
		restore, err := keepMachine()
		if err != nil {
			t.Fatal(err)
		}
		restores = append(restores, restore)
		if err := os.WriteFile(path, []byte("25000001"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i, restore := range restores {
		restore()
		now, err := os.ReadFile(path)
		if err != nil || bytes.Equal(now, was) != (i == 1) {
			t.Errorf("after %d ends: %s (%v), before: %s", i+1, now, err, was)
		}
	}
}

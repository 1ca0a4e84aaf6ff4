package tasks

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The wait ends with the process, or after its limit.
func TestAwait(t *testing.T) {
	for _, one := range []struct {
		sleep string
		ends  bool
	}{{"0.1", true}, {"60", false}} {
		command := exec.CommandContext(t.Context(), "sleep", one.sleep)
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(command.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		shim := peer{command.Process.Pid, fd, "sleep"}
		const limit = 300 * time.Millisecond
		if one.ends {
			err = shim.await(time.Minute)
		} else {
			err = shim.await(limit)
		}
		if err != nil {
			t.Error(err)
		}
		if ended := shim.hasEnded(); ended != one.ends {
			t.Errorf("sleep %s: has ended is %v", one.sleep, ended)
		}
		shim.close()
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}

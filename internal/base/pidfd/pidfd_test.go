package pidfd

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
		limit time.Duration
		ends  bool
	}{{"0.1", time.Minute, true}, {"60", 300 * time.Millisecond, false}} {
		command := exec.CommandContext(t.Context(), "sleep", one.sleep)
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(command.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if ended := Await(fd, one.limit); ended != one.ends {
			t.Errorf("sleep %s: the wait found that it has ended: %v", one.sleep, ended)
		}
		if ended := Ended(fd); ended != one.ends {
			t.Errorf("sleep %s: has ended is %v", one.sleep, ended)
		}
		_ = unix.Close(fd)
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}

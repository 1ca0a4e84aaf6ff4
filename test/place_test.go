package test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// placeEnv is the environment variable with the number that a parent process has claimed for this one. A process in
// another network namespace cannot claim one, because each namespace has its own abstract sockets.
const placeEnv = "BERTH_TEST_PLACE"

// claim reserves a number, 1 to 254, that no other test on this machine has until release. Networks, bridges and
// cgroups are named after it. An abstract socket holds the number, so the kernel frees it when the process dies.
func claim() (n int, release func(), err error) {
	if inherited := os.Getenv(placeEnv); inherited != "" {
		n, err := strconv.Atoi(inherited)
		return n, func() {}, err
	}
	for n := 1; n < 255; n++ {
		listener, err := net.Listen("unix", fmt.Sprintf("@berth-test-%d", n))
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			continue
		case err != nil:
			return 0, nil, err
		case left(n):
			if err := listener.Close(); err != nil {
				return 0, nil, err
			}
			continue
		}
		return n, func() { _ = listener.Close() }, nil
	}
	return 0, nil, errors.New("claim a number for the test: all 254 are in use")
}

// left reports whether a test that was killed has left the bridge of its number on the machine. Pods of another test
// with this number could not be reached.
func left(n int) bool {
	addresses, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addresses, func(a net.Addr) bool {
		return a.String() == fmt.Sprintf("10.203.%d.1/24", n) || a.String() == fmt.Sprintf("10.204.%d.1/24", n)
	})
}

func claimed(t *testing.T) int {
	t.Helper()
	n, release, err := claim()
	check(t, err)
	t.Cleanup(release)
	return n
}

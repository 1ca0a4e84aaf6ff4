package test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// placeEnv is the number of a test that its parent has claimed: abstract sockets are
// those of a network namespace.
const placeEnv = "BERTH_TEST_PLACE"

// claim gives the caller a number that no other test on this machine has, until
// release: networks, bridges and cgroups are named by it. It is held by an
// abstract socket, which the kernel frees when the process dies.
func claim() (n int, release func(), err error) {
	if given := os.Getenv(placeEnv); given != "" {
		n, err := strconv.Atoi(given)
		return n, func() {}, err
	}
	for n := 1; n < 255; n++ {
		listener, err := net.Listen("unix", fmt.Sprintf("@berth-test-%d", n))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		return n, func() { _ = listener.Close() }, nil
	}
	return 0, nil, errors.New("claim a place for the test: 254 are taken")
}

func claimed(t *testing.T) int {
	t.Helper()
	n, release, err := claim()
	check(t, err)
	t.Cleanup(release)
	return n
}

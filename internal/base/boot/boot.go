package boot

import (
	"os"
	"strings"
)

// ID is a random UUID that the kernel chooses at each boot, see random(4).
func ID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

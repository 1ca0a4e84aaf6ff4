package stall

import (
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/cgroups"
)

// Read reads a file of PSI (Documentation/accounting/psi.rst). It returns nil if the kernel does not measure it:
// then the file is missing, or cannot be read.
func Read(path string) *cgroups.PSIStats {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	stats := new(cgroups.PSIStats)
	for line := range strings.Lines(string(text)) {
		kind, values, _ := strings.Cut(strings.TrimSpace(line), " ")
		data := &stats.Some
		if kind == "full" {
			data = &stats.Full
		}
		if _, err := fmt.Sscanf(values, "avg10=%f avg60=%f avg300=%f total=%d", &data.Avg10, &data.Avg60, &data.Avg300,
			&data.Total); err != nil {
			return nil
		}
	}
	return stats
}

//go:build faults

package guard

import (
	"fmt"
	"os"
	"strings"
)

// Point panics if the file that the environment variable BERTH_FAULTS names has the line "PLACE NAMESPACE/NAME". A
// call to a gRPC server has its service as the namespace, and its method as the name. Only tests build with the tag
// faults.
func Point(place, namespace, name string) {
	text, err := os.ReadFile(os.Getenv("BERTH_FAULTS"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == fmt.Sprintf("%s %s/%s", place, namespace, name) {
			panic("injected fault at " + place)
		}
	}
}

package guard

import (
	"fmt"
	"os"
	"strings"
)

// faults is "on" in the binary of tests only, where the linker sets it. A build tag would compile all packages that use
// this one again.
var faults = ""

// Point is a place in the work on one pod, or in a call, where the binary of tests can panic. It does so if the file
// that the environment variable BERTH_FAULTS names has the line "PLACE NAMESPACE/NAME". A call to a gRPC server has its
// service as the namespace, and its method as the name. In other binaries Point does nothing.
func Point(place, namespace, name string) {
	if faults != "" {
		inject(place, namespace, name)
	}
}

func inject(place, namespace, name string) {
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

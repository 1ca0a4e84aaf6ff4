package podlog

import (
	"strings"
	"testing"
)

func TestIsDockerLog(t *testing.T) {
	id := strings.Repeat("0a", 32)
	for target, want := range map[string]bool{
		"/var/lib/docker/containers/" + id + "/" + id + "-json.log": true,
		"/var/lib/docker/containers/" + id + "/other-json.log":      false,
		"/var/lib/docker/volumes/" + id + "/" + id + "-json.log":    false,
		"/var/lib/docker/containers/x/x-json.log":                   false,
		"containers/" + id + "/" + id + "-json.log":                 false,
		"/etc/shadow": false,
	} {
		if got := isDockerLog(target); got != want {
			t.Errorf("%s: %v", target, got)
		}
	}
}

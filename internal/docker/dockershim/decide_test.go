package dockershim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamesOfLoadedImages(t *testing.T) {
	names, reason := loadedNames(`{"status":"Loading layer","progressDetail":{"current":1},"id":"a"}
{"stream":"Loaded image: busybox:1\n"}
{"stream":"Loaded image ID: sha256:00\n"}
`)
	if diff := cmp.Diff([]string{"docker.io/library/busybox:1", "sha256:00"}, names); diff != "" || reason != "" {
		t.Errorf("%q %s", reason, diff)
	}
	if _, reason := loadedNames(`{"error":"no space left on device"}`); reason != "no space left on device" {
		t.Errorf("reason %q", reason)
	}
}

package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFullName(t *testing.T) {
	got := map[string]string{}
	for _, name := range []string{"latest", "busybox:1.36", "example.com/a/b", "example.com/a@bad", ""} {
		got[name] = fullName(name)
	}
	want := map[string]string{
		"latest":            "", // a bare tag
		"busybox:1.36":      "docker.io/library/busybox:1.36",
		"example.com/a/b":   "example.com/a/b:latest",
		"example.com/a@bad": "",
		"":                  "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("full names (-want +got):\n%s", diff)
	}
}

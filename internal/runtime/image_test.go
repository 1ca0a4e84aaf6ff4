package runtime

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"io"
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

// Other tools can read the archive of the pause image, and it has the same bytes each time.
func TestPauseArchive(t *testing.T) {
	first, err := pauseArchive("localhost/berth-pause:1", []byte("program"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := pauseArchive("localhost/berth-pause:1", []byte("program"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, again) {
		t.Error("two archives of one program differ")
	}
	image, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(first)), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/pause"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
}

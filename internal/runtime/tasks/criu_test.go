package tasks

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/berth-run/berth/internal/base/logfile"
)

func TestReadSpecKeepsTheSpecification(t *testing.T) {
	for given, want := range map[string]string{
		`{"root":{"path":"rootfs"}}`: `{"annotations":{"org.criu.config":"/b/criu.conf"},"root":{"path":"rootfs"}}`,
		`{"annotations":{"a":"b"}}`:  `{"annotations":{"a":"b","org.criu.config":"/b/criu.conf"}}`,
	} {
		got, logged, err := readSpec(&anypb.Any{TypeUrl: "spec", Value: []byte(given)}, "/b/criu.conf")
		if err != nil || logged || got.GetTypeUrl() != "spec" || string(got.GetValue()) != want {
			t.Errorf("%s, %v, want %s", got.GetValue(), err, want)
		}
	}
	if _, _, err := readSpec(&anypb.Any{Value: []byte("x")}, "/b"); err == nil {
		t.Error("a specification that is no JSON is accepted")
	}
	spec := &anypb.Any{Value: []byte(`{"annotations":{"` + logfile.Annotation + `":"/l"}}`)}
	if _, logged, err := readSpec(spec, "/b"); err != nil || !logged {
		t.Errorf("a container with a log: %t, %v", logged, err)
	}
}

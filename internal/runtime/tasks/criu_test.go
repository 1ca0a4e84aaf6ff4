package tasks

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
)

func TestWithCRIUConfigKeepsTheSpecification(t *testing.T) {
	for given, want := range map[string]string{
		`{"root":{"path":"rootfs"}}`: `{"annotations":{"org.criu.config":"/b/criu.conf"},"root":{"path":"rootfs"}}`,
		`{"annotations":{"a":"b"}}`:  `{"annotations":{"a":"b","org.criu.config":"/b/criu.conf"}}`,
	} {
		got, err := withCRIUConfig(&anypb.Any{TypeUrl: "spec", Value: []byte(given)}, "/b/criu.conf")
		if err != nil || got.GetTypeUrl() != "spec" || string(got.GetValue()) != want {
			t.Errorf("%s, %v, want %s", got.GetValue(), err, want)
		}
	}
	if _, err := withCRIUConfig(&anypb.Any{Value: []byte("x")}, "/b"); err == nil {
		t.Error("a specification that is no JSON is accepted")
	}
}

package create

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/identity"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

func TestDecideAboutTheHolderOfAName(t *testing.T) {
	record := func(spec string, state runtimeapi.ContainerState) *index.Record {
		return &index.Record{Identity: identity.Identity{Spec: spec}, State: state}
	}
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for _, test := range []struct {
		name   string
		holder *index.Record
		usable bool
		want   verdict
	}{
		{"the same request, usable", record("a", running), true, reuse},
		{"the same request, half made", record("a", running), false, remove},
		{"another request, running", record("b", running), true, refuse},
		{"another request, half made", record("b", running), false, remove},
		{"another request, ended", record("b", exited), true, remove},
		{"cri-dockerd's, ended", record("", exited), true, remove},
		{"lost", nil, true, rename},
	} {
		if got := decide(test.holder, "a", func(*index.Record) bool { return test.usable }); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

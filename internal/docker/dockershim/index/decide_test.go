package index

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStateOfContainers(t *testing.T) {
	for _, test := range []struct {
		status container.ContainerState
		code   int
		want   runtimeapi.ContainerState
	}{
		{"created", 0, runtimeapi.ContainerState_CONTAINER_CREATED},
		{"created", 127, runtimeapi.ContainerState_CONTAINER_EXITED},
		{"running", 0, runtimeapi.ContainerState_CONTAINER_RUNNING},
		{"paused", 0, runtimeapi.ContainerState_CONTAINER_RUNNING},
		{"exited", 1, runtimeapi.ContainerState_CONTAINER_EXITED},
		{"dead", 0, runtimeapi.ContainerState_CONTAINER_EXITED},
		{"odd", 0, runtimeapi.ContainerState_CONTAINER_UNKNOWN},
	} {
		if got := state(&container.State{Status: test.status, ExitCode: test.code}); got != test.want {
			t.Errorf("%s %d: %s, want %s", test.status, test.code, got, test.want)
		}
	}
}

func TestZeroTimesOfDockerAreUnset(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "0001-01-01T00:00:00Z": 0, "1970-01-01T00:00:01.000000002Z": 1_000_000_002,
	} {
		if got := nanoseconds(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// A container that was created, started and has ended between two looks has all events.
func TestStagesBetweenTwoLooks(t *testing.T) {
	const (
		created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	)
	fresh := &Record{State: runtimeapi.ContainerState_CONTAINER_CREATED}
	running := &Record{State: runtimeapi.ContainerState_CONTAINER_RUNNING, Times: Times{Started: 1}}
	exited := &Record{State: runtimeapi.ContainerState_CONTAINER_EXITED, Times: Times{Started: 1}}
	failed := &Record{State: runtimeapi.ContainerState_CONTAINER_EXITED}
	for _, test := range []struct {
		name          string
		before, after *Record
		want          []runtimeapi.ContainerEventType
	}{
		{"created", nil, fresh, []runtimeapi.ContainerEventType{created}},
		{"started", fresh, running, []runtimeapi.ContainerEventType{started}},
		{"exited", running, exited, []runtimeapi.ContainerEventType{stopped}},
		{"started and exited", fresh, exited, []runtimeapi.ContainerEventType{started, stopped}},
		{"all at once", nil, exited, []runtimeapi.ContainerEventType{created, started, stopped}},
		{"did not start", fresh, failed, []runtimeapi.ContainerEventType{stopped}},
		{"removed", exited, nil, []runtimeapi.ContainerEventType{deleted}},
		{"killed and removed", running, nil, []runtimeapi.ContainerEventType{stopped, deleted}},
		{"nothing", exited, exited, nil},
		{"unknown", nil, nil, nil},
	} {
		if diff := cmp.Diff(test.want, stages(test.before, test.after)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestStaleAfterList(t *testing.T) {
	exited := &Record{State: runtimeapi.ContainerState_CONTAINER_EXITED}
	for _, test := range []struct {
		known *Record
		state container.ContainerState
		want  bool
	}{
		{nil, "exited", true}, {exited, "exited", false}, {exited, "running", true},
		{&Record{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, "running", true},
	} {
		if got := stale(test.known, &container.Summary{State: test.state}); got != test.want {
			t.Errorf("%v, %s: %v", test.known, test.state, got)
		}
	}
}

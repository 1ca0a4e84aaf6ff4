package critest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testEvents tests that the runtime sends an event for each change of a sandbox and of a container. It ignores the
// statuses in the events, since the agent reads the state itself.
func testEvents(t *testing.T, env Env) {
	events := watch(t, env)

	p := env.runPod(t, "events")
	id := p.run(t, p.containerConfig("c", "exit", "3"))
	env.exited(t, id)
	p.stop(t)
	p.remove(t)

	const (
		created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	)
	names := map[string]string{p.id: "sandbox", id: "container"}
	got := map[string][]runtimeapi.ContainerEventType{}
	for {
		event := receive(t, events)
		name := names[event.ContainerId]
		if name == "" {
			continue
		}
		// A runtime may send an event twice.
		if all := got[name]; len(all) == 0 || all[len(all)-1] != event.ContainerEventType {
			got[name] = append(all, event.ContainerEventType)
		}
		if name == "sandbox" && event.ContainerEventType == deleted {
			break
		}
	}
	want := map[string][]runtimeapi.ContainerEventType{
		"sandbox":   {created, started, stopped, deleted},
		"container": {created, started, stopped, deleted},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// watch opens the event stream until the end of the test. gRPC opens a stream before the runtime registers it, so watch
// runs pods until the first event arrives.
func watch(t *testing.T, env Env) <-chan *runtimeapi.ContainerEventResponse {
	t.Helper()
	stream, err := env.Client.Runtime.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// There is room for all events of the suite: stock containerd waits in every call for a client that does not read.
	const room = 10_000
	events := make(chan *runtimeapi.ContainerEventResponse, room)
	go func() {
		defer close(events)
		for {
			event, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case events <- event:
			case <-t.Context().Done():
				return
			}
		}
	}()
	for probe := 0; ; probe++ {
		env.runPod(t, fmt.Sprint("probe", probe))
		select {
		case <-events:
			return events
		case <-time.After(time.Second):
		}
	}
}

func receive(t *testing.T, events <-chan *runtimeapi.ContainerEventResponse) *runtimeapi.ContainerEventResponse {
	t.Helper()
	select {
	case event, ok := <-events:
		if ok {
			return event
		}
		t.Fatal("the event stream has ended")
	case <-time.After(timeout):
		t.Fatalf("no event within %s", timeout)
	}
	return nil
}

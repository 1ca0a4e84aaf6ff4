package fake

import (
	"fmt"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/critest/fake/script"
)

// killed is the exit code of a process that got SIGKILL.
const killed = 137

// pods are the sandboxes and containers of the fake, and the streams that report their changes.
type pods struct {
	mu         sync.Mutex
	sandboxes  []*sandbox                                       // in the order of creation
	containers []*container                                     // in the order of creation
	created    int                                              // number of sandboxes and containers created so far
	streams    map[chan *runtimeapi.ContainerEventResponse]bool // open event streams
	network    *runtimeapi.RuntimeCondition
	closed     bool // the test has ended: processes stop acting
}

func newPods() *pods {
	return &pods{
		streams: map[chan *runtimeapi.ContainerEventResponse]bool{},
		network: &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true},
	}
}

// close stops all processes for good.
func (p *pods) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.containers {
		c.halt()
	}
}

func (p *pods) sandbox(id string) *sandbox {
	for _, s := range p.sandboxes {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (p *pods) container(id string) *container {
	for _, c := range p.containers {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (p *pods) nextID(kind string) string {
	p.created++
	return fmt.Sprintf("%s-%d", kind, p.created)
}

// start runs the main process.
func (p *pods) start(c *container, process *script.Process) {
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	c.started = time.Now().UnixNano()
	c.process, c.exited = process, make(chan struct{})
	p.publish(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandbox)
	// Like a real process, it acts only after StartContainer has returned.
	p.schedule(c, 0)
}

// schedule makes the process continue after wait.
func (p *pods) schedule(c *container, wait time.Duration) {
	if wait == script.Forever {
		return
	}
	c.timer = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING || p.closed {
			return
		}
		wait, ended, code := c.process.Advance()
		if ended {
			p.exit(c, code, "")
			return
		}
		p.schedule(c, wait)
	})
}

// exit ends the main process if it is running.
func (p *pods) exit(c *container, code int32, reason string) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	if reason == "" {
		reason = "Error"
		if code == 0 {
			reason = "Completed"
		}
	}
	c.halt()
	c.state = runtimeapi.ContainerState_CONTAINER_EXITED
	c.ended = time.Now().UnixNano()
	c.code, c.reason = code, reason
	close(c.exited)
	p.publish(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sandbox)
}

func (p *pods) stop(s *sandbox) {
	if !s.ready {
		return
	}
	s.ready = false
	p.publish(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, s.id, s)
}

// publish sends an event with the state of the whole pod, as containerd does. It closes the stream of a reader that is
// too slow, so that it never blocks the fake.
func (p *pods) publish(kind runtimeapi.ContainerEventType, id string, s *sandbox) {
	event := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
	}
	if p.sandbox(s.id) != nil {
		event.PodSandboxStatus = s.status()
	}
	for _, c := range p.containers {
		if c.sandbox == s {
			event.ContainersStatuses = append(event.ContainersStatuses, c.status())
		}
	}
	for ch := range p.streams {
		select {
		case ch <- event:
		default:
			close(ch)
			delete(p.streams, ch)
		}
	}
}

// remove ends a container and forgets it. The caller holds mu.
func (p *pods) remove(c *container) {
	p.exit(c, killed, "")
	c.log.close()
	p.containers = slices.DeleteFunc(p.containers, func(have *container) bool { return have == c })
	p.publish(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, c.sandbox)
}

// selected reports whether labels have every pair of the selector.
func selected(labels, selector map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

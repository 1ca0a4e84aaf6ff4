package critest

import (
	"fmt"
	"maps"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/critest/script"
)

// sandbox and container are the fake's records, guarded by Fake.mu.
type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	handler string
	created int64
	ready   bool
	ip      string
}

type container struct {
	id      string
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	state   runtimeapi.ContainerState
	created int64
	started int64
	ended   int64
	code    int32
	reason  string
	message string

	process *script.Process
	timer   *time.Timer   // until the process acts again
	exited  chan struct{} // closed when the container has exited
	log     *logFile
}

// halt stops the container's process and closes its log. The container keeps its state.
func (c *container) halt() {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.log.close()
}

func (f *Fake) sandbox(id string) *sandbox {
	for _, s := range f.sandboxes {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (f *Fake) container(id string) *container {
	for _, c := range f.containers {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (f *Fake) nextID(kind string) string {
	f.created++
	return fmt.Sprintf("%s-%d", kind, f.created)
}

// start runs the main process.
func (f *Fake) start(c *container, p *script.Process) {
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	c.started = time.Now().UnixNano()
	c.process, c.exited = p, make(chan struct{})
	f.publish(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandbox)
	// Like a real process, it acts only after StartContainer has returned.
	f.schedule(c, 0)
}

// schedule makes the process continue after wait.
func (f *Fake) schedule(c *container, wait time.Duration) {
	if wait == script.Forever {
		return
	}
	c.timer = time.AfterFunc(wait, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING || f.closed {
			return
		}
		wait, ended, code := c.process.Advance()
		if ended {
			f.exit(c, code, "")
			return
		}
		f.schedule(c, wait)
	})
}

// exit ends the main process if it is running.
func (f *Fake) exit(c *container, code int32, reason string) {
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
	f.publish(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sandbox)
}

func (f *Fake) stopSandbox(s *sandbox) {
	if !s.ready {
		return
	}
	s.ready = false
	f.publish(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, s.id, s)
}

// publish sends an event with the state of the whole pod, as containerd does. It closes the stream of a reader that is
// too slow, so that it never blocks the fake.
func (f *Fake) publish(kind runtimeapi.ContainerEventType, id string, s *sandbox) {
	event := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
	}
	if f.sandbox(s.id) != nil {
		event.PodSandboxStatus = s.status()
	}
	for _, c := range f.containers {
		if c.sandbox == s {
			event.ContainersStatuses = append(event.ContainersStatuses, c.status())
		}
	}
	for ch := range f.streams {
		select {
		case ch <- event:
		default:
			close(ch)
			delete(f.streams, ch)
		}
	}
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip},
		Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.namespaces()}},
		Labels:  maps.Clone(s.config.Labels), Annotations: maps.Clone(s.config.Annotations), RuntimeHandler: s.handler,
	}
}

func (s *sandbox) namespaces() *runtimeapi.NamespaceOption {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func (c *container) status() *runtimeapi.ContainerStatus {
	logPath := ""
	if c.log != nil {
		logPath = c.log.path
	}
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state,
		CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.ended,
		ExitCode: c.code, Reason: c.reason, Message: c.message,
		Image: c.config.Image, ImageRef: imageID(c.config.Image.GetImage()),
		Labels: maps.Clone(c.config.Labels), Annotations: maps.Clone(c.config.Annotations),
		Mounts: c.config.Mounts, LogPath: logPath,
		Resources: &runtimeapi.ContainerResources{Linux: c.config.GetLinux().GetResources()},
	}
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

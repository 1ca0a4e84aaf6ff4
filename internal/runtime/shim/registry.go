package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// registry has the containers of the node by ID.
type registry struct {
	mu         sync.Mutex
	containers map[string]*container
	// changing has the containers that are being created or discarded. The channel closes at the end.
	changing map[string]chan struct{}
	idle     *time.Timer // calls endIfEmpty
	end      func()
	// ending is set before end is called. No container is created any more.
	ending bool
}

var errEnding = errors.New("the shim is ending")

// idleTime is how long a shim waits for its first container, and for another one after its last. So pods that run one
// after the other do not each wait for the start of a shim. An agent that stops ends it at once.
const idleTime = 10 * time.Second

// newRegistry makes a registry. It calls end when the time without a container is over.
func newRegistry(end func()) *registry {
	r := &registry{containers: map[string]*container{}, changing: map[string]chan struct{}{}, end: end}
	r.idle = time.AfterFunc(idleTime, r.endIfEmpty)
	return r
}

// endIfEmpty ends the shim if there is no container.
func (r *registry) endIfEmpty() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.containers)+len(r.changing) == 0 {
		r.ending = true
		r.end()
	}
}

// close refuses further containers. It waits until none is being created or discarded, at most for a time.
func (r *registry) close(limit time.Duration) {
	late := time.After(limit)
	r.mu.Lock()
	r.ending = true
	changing := slices.Collect(maps.Values(r.changing))
	r.mu.Unlock()
	for _, settled := range changing {
		select {
		case <-settled:
		case <-late:
			return
		}
	}
}

// find returns a container. It waits for one that is being created: an agent that comes back must not take it for one
// that does not exist.
func (r *registry) find(id string) (*container, error) {
	c := r.lockSettled(id)
	defer r.mu.Unlock()
	if c == nil {
		return nil, errgrpc.ToGRPCf(errdefs.ErrNotFound, "container %s", id)
	}
	return c, nil
}

// outputs returns inheritable descriptors of the unread output of all containers. Without them, the kernel drops what a
// container that has ended has written.
func (r *registry) outputs() (fds []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		for _, p := range append(c.all(), c.init) {
			fds = append(fds, p.stdio.Inheritable()...)
		}
	}
	return fds
}

// findProcess returns a process and its container.
func (r *registry) findProcess(id, exec string) (*container, *process, error) {
	c, err := r.find(id)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.process(exec)
	return c, p, errgrpc.ToGRPC(err)
}

// lockSettled waits until a container is neither being created nor being discarded. It then takes the lock and returns
// the container, or nil.
func (r *registry) lockSettled(id string) *container {
	for {
		r.mu.Lock()
		settled := r.changing[id]
		if settled == nil {
			return r.containers[id]
		}
		r.mu.Unlock()
		<-settled
	}
}

// reserve reserves the ID of a container before its creation or removal. Call set afterwards.
func (r *registry) reserve(id string) error {
	c := r.lockSettled(id)
	defer r.mu.Unlock()
	if r.ending {
		return errEnding
	}
	if c != nil {
		return fmt.Errorf("container %s: %w", id, errdefs.ErrAlreadyExists)
	}
	r.changing[id] = make(chan struct{})
	return nil
}

// set adds a container, or removes it for nil.
func (r *registry) set(id string, c *container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if settled := r.changing[id]; settled != nil {
		close(settled)
		delete(r.changing, id)
	}
	if c != nil {
		r.containers[id] = c
		return
	}
	delete(r.containers, id)
	if len(r.containers) == 0 {
		r.idle.Reset(idleTime)
	}
}

package exits

import (
	"context"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/services"
	"github.com/containerd/plugin"
	"google.golang.org/grpc"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/runtime/replace"
)

// Gate stands between containerd's tasks and their readers.
type Gate struct {
	mu     sync.Mutex
	closed bool
	// reported has the containers whose end was reported, until their task is deleted.
	reported map[string]bool
	changed  wake.Broadcast // of reported
	ended    wake.Signal
}

// Register puts a gate before containerd's service of tasks. Call it once, before containerd starts.
func Register() *Gate {
	g := newGate()
	replace.Plugin(plugins.ServicePlugin, services.TasksService, nil,
		func(_ *plugin.InitContext, client tasks.TasksClient) (any, error) { return service{client, g}, nil })
	return g
}

func newGate() *Gate { return &Gate{reported: map[string]bool{}, ended: wake.New()} }

// Close ends the reports. It then waits until the tasks whose end was reported are deleted, at most for limit. The next
// runtime repeats a deletion that fails.
func (g *Gate) Close(limit time.Duration) {
	late := time.After(limit)
	for {
		g.mu.Lock()
		g.closed = true
		left, changed := len(g.reported), g.changed.C()
		g.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-changed:
		case <-late:
			return
		}
	}
}

// Ended fires after the end of a container was reported. It has one reader.
func (g *Gate) Ended() <-chan struct{} { return g.ended.C() }

// report notes that the end of a container is being reported. It returns false if it must not be. The CRI plugin asks
// again while it handles an end.
func (g *Gate) report(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed && !g.reported[id] {
		return false
	}
	g.reported[id] = true
	g.ended.Wake()
	return true
}

// deleted notes that the CRI plugin has handled an end, up to the deletion of the task.
func (g *Gate) deleted(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.reported, id)
	g.changed.Wake()
}

// service is containerd's service of tasks.
type service struct {
	tasks.TasksClient
	gate *Gate
}

// Wait implements tasks.TasksClient. Every answer is an end for the CRI plugin, also an error.
func (s service) Wait(ctx context.Context, r *tasks.WaitRequest,
	opts ...grpc.CallOption) (*tasks.WaitResponse, error) {
	response, err := s.TasksClient.Wait(ctx, r, opts...)
	if r.GetExecID() == "" && ctx.Err() == nil && !s.gate.report(r.GetContainerID()) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return response, err
}

// Delete implements tasks.TasksClient.
func (s service) Delete(ctx context.Context, r *tasks.DeleteTaskRequest,
	opts ...grpc.CallOption) (*tasks.DeleteResponse, error) {
	defer s.gate.deleted(r.GetContainerID())
	return s.TasksClient.Delete(ctx, r, opts...)
}

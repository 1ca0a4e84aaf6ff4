package cri

import (
	"context"
	"regexp"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerdNamespace is the namespace of the CRI plugin's containers in containerd.
const containerdNamespace = "k8s.io"

// keptTask finds the container in containerd's refusal to remove it.
var keptTask = regexp.MustCompile(`cannot delete running task ([0-9A-Za-z._-]+)`)

// dropTasks removes the tasks that containerd has forgotten, and repeats a removal that failed because of them.
//
// containerd creates the task of a container and then asks for its process ID. If the caller's deadline passes or the
// caller dies between the two, the CRI plugin notes the container as exited and the task stays: no CRI call can end it,
// and every removal of the container and its sandbox fails until containerd is restarted (containerd issue 11037).
// containerd serves its own API beside the CRI on the same connection, which can. Other runtimes never give this error.
func dropTasks(conn grpc.ClientConnInterface) concern {
	client := tasks.NewTasksClient(conn)
	return func(next call) call {
		return func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
			err := next(ctx, method, req, reply, opts...)
			if !isRemoval(req) {
				return err
			}
			for dropped := map[string]bool{}; ; {
				id := keptBy(err)
				if id == "" || dropped[id] || dropTask(ctx, client, id) != nil {
					return err
				}
				dropped[id] = true
				err = next(ctx, method, req, reply, opts...)
			}
		}
	}
}

func isRemoval(req any) bool {
	switch req.(type) {
	case *runtimeapi.RemoveContainerRequest, *runtimeapi.RemovePodSandboxRequest:
		return true
	}
	return false
}

// keptBy is the container whose forgotten task made a removal fail, or "".
func keptBy(err error) (id string) {
	if status.Code(err) != codes.FailedPrecondition {
		return ""
	}
	if found := keptTask.FindStringSubmatch(status.Convert(err).Message()); found != nil {
		return found[1]
	}
	return ""
}

// dropTask kills a task and removes it. The caller asked for the removal of the container. In that case the CRI ends a
// running container by force.
func dropTask(ctx context.Context, client tasks.TasksClient, id string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", containerdNamespace)
	_, err := client.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL), All: true})
	if err != nil && !IsNotFound(err) { // the process may have ended before
		return err
	}
	if _, err = client.Wait(ctx, &tasks.WaitRequest{ContainerID: id}); err != nil {
		return err
	}
	_, err = client.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	return err
}

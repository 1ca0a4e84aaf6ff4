package exits

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
)

// ended is a service whose tasks have all ended. Their deletion fails.
type ended struct{ tasks.TasksClient }

func (ended) Wait(context.Context, *tasks.WaitRequest, ...grpc.CallOption) (*tasks.WaitResponse, error) {
	return &tasks.WaitResponse{ExitStatus: 7}, nil
}

func (ended) Delete(context.Context, *tasks.DeleteTaskRequest, ...grpc.CallOption) (*tasks.DeleteResponse, error) {
	return nil, errors.New("disk full")
}

func wait(ctx context.Context, t *testing.T, s service, r *tasks.WaitRequest, want uint32) {
	t.Helper()
	response, err := s.Wait(ctx, r)
	if err != nil || response.ExitStatus != want {
		t.Errorf("waited for %s: %v, %v", r.ContainerID, response, err)
	}
}

// Close waits for the ends that were reported before, and no other end is reported any more.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service{ended{}, newGate()}
		one := &tasks.WaitRequest{ContainerID: "one"}
		wait(t.Context(), t, s, one, 7)
		<-s.gate.Ended()
		began := time.Now()
		closed := make(chan time.Duration)
		go func() {
			s.gate.Close(time.Hour)
			closed <- time.Since(began)
		}()
		synctest.Wait()
		wait(t.Context(), t, s, one, 7) // the CRI plugin asks again
		wait(t.Context(), t, s, &tasks.WaitRequest{ContainerID: "two", ExecID: "command"}, 7)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Wait(ctx, &tasks.WaitRequest{ContainerID: "two"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an end was reported after Close: %v", err)
		}
		if _, err := s.Delete(t.Context(), &tasks.DeleteTaskRequest{ContainerID: "one"}); err == nil {
			t.Error("the error of the deletion is lost")
		}
		if took := <-closed; took != time.Minute {
			t.Errorf("Close took %v, want until the reported end was handled", took)
		}
	})
}

// Close ends in its time, also if an end is never handled.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service{ended{}, newGate()}
		wait(t.Context(), t, s, &tasks.WaitRequest{ContainerID: "one"}, 7)
		began := time.Now()
		s.gate.Close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}

package condition

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kubelet asks every 5 s; a runtime that is not ready yet is asked more often,
// so that the node is Ready as soon as it can be.
const (
	askEvery     = 5 * time.Second
	askUnready   = 500 * time.Millisecond
	answerWithin = 20 * time.Second
)

// runtimeStatus is the part of the CRI that says how the runtime is.
type runtimeStatus interface {
	Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error)
}

// RuntimeWatch asks the runtime how it is and sets the kinds Runtime and Network.
type RuntimeWatch struct {
	table   *Table
	runtime runtimeStatus
	log     *slog.Logger
	last    atomic.Pointer[runtimeapi.StatusResponse]
}

// NewRuntimeWatch returns a watch that has not asked yet.
func NewRuntimeWatch(table *Table, runtime runtimeStatus, log *slog.Logger) *RuntimeWatch {
	return &RuntimeWatch{table: table, runtime: runtime, log: log}
}

// Last is the last answer of a runtime that was ready; nil when it never was.
func (w *RuntimeWatch) Last() *runtimeapi.StatusResponse { return w.last.Load() }

// Run asks until ctx ends.
func (w *RuntimeWatch) Run(ctx context.Context) error {
	for {
		wait := askEvery
		if !w.ask(ctx) {
			wait = askUnready
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// ask says whether runtime and network are ready. No answer sets no fact: the
// silence counts.
func (w *RuntimeWatch) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r, err := w.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		if ctx.Err() == nil {
			w.log.Debug("The runtime does not say how it is", "err", err)
		}
		return false
	}
	runtime, network := read(r)
	if runtime == "" {
		w.last.Store(r)
	}
	w.table.set(map[Kind]string{Runtime: runtime, Network: network})
	return runtime == "" && network == ""
}

// read takes the problems out of an answer.
func read(r *runtimeapi.StatusResponse) (runtime, network string) {
	problem := func(name, what string) string {
		for _, c := range r.GetStatus().GetConditions() {
			if c.GetType() != name {
				continue
			}
			if c.GetStatus() {
				return ""
			}
			return fmt.Sprintf("%s: %s=%t reason:%s message:%s", what, name, c.GetStatus(), c.GetReason(), c.GetMessage())
		}
		return what + ": the runtime has no condition " + name
	}
	return problem(runtimeapi.RuntimeReady, "container runtime not ready"),
		problem(runtimeapi.NetworkReady, "container runtime network not ready")
}

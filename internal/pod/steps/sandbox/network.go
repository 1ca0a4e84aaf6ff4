package sandbox

import (
	"context"
	"fmt"

	"github.com/berth-run/berth/internal/cri"
)

// Network is the pod network of the runtime.
type Network struct{ Monitor *cri.Monitor }

// Await waits until the runtime can connect pods to a network. It says in the kubelet's words why it waits.
func (n Network) Await(ctx context.Context, why func(message string)) error {
	return n.Monitor.AwaitNetwork(ctx, func(c cri.Condition) { why(notReady(c)) })
}

func notReady(c cri.Condition) string {
	return fmt.Sprintf("container runtime network not ready: NetworkReady=false reason:%s message:%s", c.Reason,
		c.Message)
}

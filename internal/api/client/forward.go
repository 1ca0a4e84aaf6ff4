package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward says which ports of a pod are reached where.
type Forward struct {
	// Addresses to listen on: IP addresses, or localhost, which is those of
	// both families.
	Addresses []string
	// Ports are LOCAL:REMOTE; local port 0 is any free one.
	Ports []string
	// Out is told of each port, and Err of each connection that fails.
	Out, Err io.Writer
}

// PortForward listens until ctx ends, and returns nil then. It returns an error
// when the pod is lost.
func (c *Client) PortForward(ctx context.Context, key types.NamespacedName, f Forward) error {
	config, target, err := prepare(ctx, c, podPath(key)+"/portforward", nil)
	if err != nil {
		return err
	}
	roundTripper, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return fmt.Errorf("connect streams: %w", err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, target)
	forwarder, err := portforward.NewOnAddresses(dialer, f.Addresses, f.Ports, ctx.Done(), make(chan struct{}), f.Out,
		f.Err)
	if err != nil {
		return fmt.Errorf("forward ports of pod %s: %w", key, err)
	}
	if err := forwarder.ForwardPorts(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("forward ports of pod %s: %w", key, err)
	}
	return nil
}

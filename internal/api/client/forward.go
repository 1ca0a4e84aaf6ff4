package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward maps local ports to ports of a pod.
type Forward struct {
	// Addresses to listen on: IP addresses, or localhost, which stands for 127.0.0.1 and ::1.
	Addresses []string
	// Ports are LOCAL:REMOTE pairs. The local port 0 stands for any free port.
	Ports []string
	// Out gets a line for each open port, Err one for each failed connection.
	Out, Err io.Writer
}

// PortForward listens until ctx ends, and returns nil then. It returns an error if the connection to the
// pod is lost.
func (p Pod) PortForward(ctx context.Context, f Forward) error {
	target, err := prepare(ctx, p.client, p.path()+"/portforward", nil)
	if err != nil {
		return err
	}
	roundTripper, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: target.Scheme + "://" + target.Host})
	if err != nil {
		return fmt.Errorf("connect streams: %w", err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, target)
	forwarder, err := portforward.NewOnAddresses(dialer, f.Addresses, f.Ports, ctx.Done(), make(chan struct{}), f.Out,
		f.Err)
	if err != nil {
		return fmt.Errorf("forward ports of pod %s: %w", p.key, err)
	}
	err = forwarder.ForwardPorts()
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the caller has ended it
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), "unable to listen on any"): // the library has no type for this error
		return Next(fmt.Errorf("forward ports of pod %s: cannot listen on any port of %s", p.key,
			strings.Join(f.Ports, ", ")), "choose another local port with LOCAL:PORT, or end the program that uses it")
	}
	return Next(fmt.Errorf("forward ports of pod %s: %w", p.key, err),
		`see "berth get pods" for whether the pod still runs`)
}

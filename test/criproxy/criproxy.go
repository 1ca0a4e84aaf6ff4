package criproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Fault changes the calls of a method.
type Fault string

// Faults. Fail and Empty do not reach the runtime.
const (
	// Fail answers with the code Internal.
	Fail Fault = "fail"
	// Empty answers with a message without fields.
	Empty Fault = "empty"
	// Lost does not answer before the call's deadline. The runtime gets the call and carries it out.
	Lost Fault = "lost"
	// Unknown sets the state of the container in the answer of ContainerStatus to unknown.
	Unknown Fault = "unknown"
	// NoAddress removes the addresses from the answer of PodSandboxStatus.
	NoAddress Fault = "no-address"
	// OtherNetwork changes the network mode in the answer of PodSandboxStatus to the host's.
	OtherNetwork Fault = "other-network"
)

// Proxy is a running proxy.
type Proxy struct {
	server  *grpc.Server
	runtime *grpc.ClientConn

	mu     sync.Mutex
	faults map[string]*planned // by method
	struck chan struct{}       // closed and replaced at each fault
}

// planned is a fault that occurs a number of times.
type planned struct {
	fault Fault
	left  int // below 0: without end
}

// Start serves CRI on a unix socket. It passes calls on to the runtime on another one.
func Start(ctx context.Context, socket, runtime string) (*Proxy, error) {
	conn, err := grpc.NewClient("unix://"+runtime, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frames{}), grpc.MaxCallRecvMsgSize(1<<26)))
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p := &Proxy{runtime: conn, faults: map[string]*planned{}, struck: make(chan struct{})}
	p.server = grpc.NewServer(grpc.ForceServerCodecV2(frames{}), grpc.UnknownServiceHandler(p.pass))
	go func() { _ = p.server.Serve(listener) }() // Close ends it
	return p, nil
}

// Close ends the proxy and its calls.
func (p *Proxy) Close() error {
	p.server.Stop()
	return p.runtime.Close()
}

// Set makes the next n calls of a method fail. A negative n stands for all calls until Heal.
func (p *Proxy) Set(method string, f Fault, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[method] = &planned{f, n}
}

// Heal ends the faults.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.faults)
}

// Await waits until the faults of all methods have occurred as often as planned, or until ctx ends.
func (p *Proxy) Await(ctx context.Context) error {
	for {
		p.mu.Lock()
		struck, left := p.struck, 0
		for _, f := range p.faults {
			left += max(0, f.left)
		}
		p.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-struck:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d more faults of the runtime: %w", left, ctx.Err())
		}
	}
}

// take returns the fault of a call, and counts it.
func (p *Proxy) take(method string) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faults[method]
	if f == nil || f.left == 0 {
		return ""
	}
	f.left--
	close(p.struck)
	p.struck = make(chan struct{})
	return f.fault
}

// pass passes one call on, of any kind.
func (p *Proxy) pass(_ any, agent grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(agent)
	fault := p.take(path.Base(full))
	if fault == Fail {
		return status.Errorf(codes.Internal, "%s was made to fail", path.Base(full))
	}
	if fault == Empty {
		return agent.SendMsg(&[]byte{})
	}
	// The runtime gets the deadline, the cancellation and the metadata of the call.
	ctx := agent.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	if fault == Lost {
		ctx = context.WithoutCancel(ctx)
	}
	runtime, err := p.runtime.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, full)
	if err != nil {
		return err
	}
	go func() {
		for {
			var request []byte
			if agent.RecvMsg(&request) != nil {
				_ = runtime.CloseSend()
				return
			}
			if runtime.SendMsg(&request) != nil {
				return // RecvMsg below has the error
			}
		}
	}()
	for {
		var answer []byte
		err := runtime.RecvMsg(&answer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if fault == Lost {
			<-agent.Context().Done()
			return agent.Context().Err()
		}
		if err == nil {
			answer, err = change(fault, path.Base(full), answer)
		}
		if err == nil {
			err = agent.SendMsg(&answer)
		}
		if err != nil {
			return err
		}
	}
}

// change returns an answer with a fault.
func change(f Fault, method string, answer []byte) ([]byte, error) {
	var m proto.Message
	var edit func()
	switch {
	case f == "":
		return answer, nil
	case f == Unknown && method == "ContainerStatus":
		one := &runtimeapi.ContainerStatusResponse{}
		m, edit = one, func() { one.Status.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN }
	case f == NoAddress && method == "PodSandboxStatus":
		one := &runtimeapi.PodSandboxStatusResponse{}
		m, edit = one, func() { one.Status.Network = nil }
	case f == OtherNetwork && method == "PodSandboxStatus":
		one := &runtimeapi.PodSandboxStatusResponse{}
		m, edit = one, func() {
			one.Status.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
		}
	default:
		return nil, fmt.Errorf("%s has no fault %q", method, f)
	}
	if err := proto.Unmarshal(answer, m); err != nil {
		return nil, err
	}
	edit()
	return proto.Marshal(m)
}

// frames is the codec of messages that stay encoded.
type frames struct{}

func (frames) Name() string { return "proto" }

func (frames) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (frames) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

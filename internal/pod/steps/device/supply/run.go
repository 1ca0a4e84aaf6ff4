package supply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/base/guard/rpc"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

// socketName is the name of the registration socket. Plugins watch the file and register again when it is created anew.
const socketName = "kubelet.sock"

// connectLimit is how long a plugin may take to report its options during registration.
const connectLimit = 10 * time.Second

// Run accepts registrations and follows registered plugins until ctx ends, including the plugins of a Registry. If the
// registration socket cannot be opened, Run logs the error and continues: the machine can still run pods.
func (d *Supply) Run(ctx context.Context) error {
	defer d.stopTimers()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.serve(ctx) })
	group.Go(func() error {
		for {
			select {
			case p := <-d.arrived:
				group.Go(func() error { d.follow(ctx, p); return nil })
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return group.Wait()
}

// serve accepts registrations at the socket.
func (d *Supply) serve(ctx context.Context) error {
	listener, err := d.listen()
	if err != nil {
		d.opts.Log.Error(
			"serve registrations of device plugins failed; no device plugin can register until the agent restarts",
			"err", err)
		<-ctx.Done()
		return ctx.Err()
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(rpc.Unary(d.opts.Log)))
	pluginapi.RegisterRegistrationServer(s, registration{d: d})
	defer context.AfterFunc(ctx, s.Stop)()
	if err := s.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve device plugins' registrations: %w", err)
	}
	return ctx.Err()
}

func (d *Supply) stopTimers() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.supplies {
		if s.expiry != nil {
			s.expiry.Stop()
		}
	}
}

// listen creates the directory and the registration socket. It first removes all sockets in the directory: they belong
// to the previous agent and to plugins that registered there. Plugins see the removal and register again.
func (d *Supply) listen() (net.Listener, error) {
	if err := os.MkdirAll(d.opts.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of device plugins: %w", err)
	}
	entries, err := os.ReadDir(d.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory of device plugins: %w", err)
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(d.opts.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	l, err := unixsocket.Listen(filepath.Join(d.opts.Dir, socketName))
	if err != nil {
		return nil, fmt.Errorf("listen for device plugins: %w", err)
	}
	return l, nil
}

// registration implements the gRPC service that plugins call.
type registration struct {
	pluginapi.UnimplementedRegistrationServer
	d *Supply
}

// Register adds a plugin, which must be serving already.
func (r registration) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	log := r.d.opts.Log.With("resource", req.GetResourceName(), "endpoint", req.GetEndpoint())
	if err := checkRegistration(req); err != nil {
		log.Error("register device plugin failed; the plugin must register again", "err", err)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if _, err := r.d.adopt(ctx, req.GetResourceName(), filepath.Join(r.d.opts.Dir, req.GetEndpoint())); err != nil {
		log.Error("register device plugin failed; the plugin must register again", "err", err)
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	log.Info("device plugin registered")
	return &pluginapi.Empty{}, nil
}

// adopt connects to a plugin and passes it to Run, which follows its list of devices.
func (d *Supply) adopt(ctx context.Context, resource, socket string) (*Client, error) {
	p, err := connect(ctx, corev1.ResourceName(resource), socket)
	if err != nil {
		return nil, err
	}
	select {
	case d.arrived <- p:
	case <-ctx.Done():
		p.close()
		return nil, ctx.Err()
	}
	d.registrations.WithLabelValues(resource).Inc()
	return p, nil
}

// Client is a connection to one device plugin.
type Client struct {
	pluginapi.DevicePluginClient
	// Options are the options that the plugin reported at its registration.
	Options *pluginapi.DevicePluginOptions

	resource corev1.ResourceName
	conn     *grpc.ClientConn
}

func connect(ctx context.Context, name corev1.ResourceName, socket string) (*Client, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithContextDialer(unixsocket.DialTarget),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0))
	if err != nil {
		return nil, fmt.Errorf("connect to device plugin: %w", err)
	}
	p := &Client{resource: name, conn: conn, DevicePluginClient: pluginapi.NewDevicePluginClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if p.Options, err = p.GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true)); err != nil {
		return nil, errors.Join(fmt.Errorf("get options of device plugin at %s: %w", socket, err), conn.Close())
	}
	return p, nil
}

// close ends the connection, and with it the stream and all calls.
func (p *Client) close() { _ = p.conn.Close() } // it fails only if the connection is closed already

// follow records the lists of devices that a plugin sends until the plugin closes its stream, another plugin replaces
// it, or ctx ends.
func (d *Supply) follow(ctx context.Context, p *Client) {
	defer p.close()
	stream, err := p.ListAndWatch(ctx, &pluginapi.Empty{})
	for first := true; err == nil; first = false {
		var list *pluginapi.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			d.update(p, list.GetDevices(), first)
		}
	}
	if ctx.Err() == nil {
		d.lose(p, err)
	}
}

// update records a plugin's list of devices. With its first list a plugin becomes the one that serves the resource.
func (d *Supply) update(p *Client, list []*pluginapi.Device, first bool) {
	devices := devicesOf(list, d.opts.Machine)
	d.mu.Lock()
	s := d.supplies[p.resource]
	if s == nil {
		s = &state{}
		d.supplies[p.resource] = s
	}
	switch {
	case first:
		if s.plugin != nil {
			s.plugin.close() // its stream ends
		}
		if s.expiry != nil {
			s.expiry.Stop()
		}
		s.plugin, s.since = p, d.opts.Now()
	case s.plugin != p, slices.Equal(s.devices, devices):
		d.mu.Unlock()
		return
	}
	s.devices = devices
	d.refresh()
	d.mu.Unlock()
	d.announce(p.resource)
}

// lose marks a plugin's devices as lost, unless another plugin serves the resource by now.
func (d *Supply) lose(p *Client, err error) {
	d.mu.Lock()
	s := d.supplies[p.resource]
	mine := s != nil && s.plugin == p
	if mine {
		s.plugin, s.since = nil, d.opts.Now()
		d.expire(p.resource, s)
		d.refresh()
	}
	d.mu.Unlock()
	if mine {
		d.opts.Log.Warn("device plugin gone, its devices are unhealthy", "resource", p.resource, "err", err)
		d.announce(p.resource)
	}
}

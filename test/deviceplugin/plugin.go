// Package deviceplugin is a device plugin (v1beta1) for tests, with devices that do not exist.
package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/test/calls"
)

// Options of a Plugin. PREFIX is the last part of the resource's name. The devices are called PREFIX-0, PREFIX-1, ...
type Options struct {
	// Dir is the directory with the agent's registration socket. The plugin makes its own socket there.
	Dir string
	// Registry is the directory plugins_registry. If it is set, the plugin serves there until the agent discovers
	// it, and does not use Dir.
	Registry string
	Resource string
	// Devices is the number of devices.
	Devices int
	// NUMA is the number of NUMA nodes. The devices are assigned to them in turn. If it is 0, they have no topology.
	NUMA int
	// Preferred makes the plugin offer GetPreferredAllocation, which prefers devices with high IDs.
	Preferred bool
	// PreStart makes the plugin require PreStartContainer before each start.
	PreStart bool
	// CDI is the kind, VENDOR/CLASS, of the CDI names in its answers. If it is empty, the answers have no CDI names.
	CDI string
	// Mount is a directory of the host that containers get at /run/PREFIX. If it is empty, they get none.
	Mount string
}

// Plugin serves until Stop. It registers again whenever a new agent has made its socket.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer
	*calls.Log // each call as its method and its devices
	opts       Options
	watcher    *fsnotify.Watcher
	stop       context.CancelFunc
	done       sync.WaitGroup

	mu      sync.Mutex
	server  *grpc.Server
	devices []*pluginapi.Device
	changed chan struct{} // closed and replaced at each change
	hang    map[string]bool
	refuse  map[string]bool
}

// Start serves the plugin, and registers it if an agent's socket exists. Otherwise the plugin registers when the
// socket appears.
func Start(o Options) (*Plugin, error) {
	p := &Plugin{Log: calls.New("device plugin"), opts: o, changed: make(chan struct{}), hang: map[string]bool{},
		refuse: map[string]bool{}}
	for i := range o.Devices {
		d := &pluginapi.Device{ID: fmt.Sprintf("%s-%d", p.prefix(), i), Health: pluginapi.Healthy}
		if o.NUMA > 0 {
			d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(i % o.NUMA)}}}
		}
		p.devices = append(p.devices, d)
	}
	var err error
	if p.watcher, err = fsnotify.NewWatcher(); err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(p.dir(), 0o750), p.watcher.Add(p.dir())); err != nil {
		return nil, errors.Join(err, p.watcher.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	served, statErr := os.Stat(p.agentSocket())
	if statErr == nil || o.Registry != "" {
		err = p.serve(ctx)
	}
	p.done.Go(func() { p.watch(ctx, served) })
	return p, err
}

func (p *Plugin) prefix() string      { return p.opts.Resource[strings.LastIndex(p.opts.Resource, "/")+1:] }
func (p *Plugin) dir() string         { return cmp.Or(p.opts.Registry, p.opts.Dir) }
func (p *Plugin) agentSocket() string { return filepath.Join(p.opts.Dir, "kubelet.sock") }
func (p *Plugin) name() string        { return "test-" + p.prefix() + ".sock" }

// watch serves anew for each agent that makes its socket. served is the socket of the agent that the plugin registered
// at already; the event of its making may still come.
func (p *Plugin) watch(ctx context.Context, served os.FileInfo) {
	for e := range p.watcher.Events {
		if e.Name != p.agentSocket() || !e.Has(fsnotify.Create) {
			continue
		}
		now, err := os.Stat(p.agentSocket())
		if err == nil && served != nil && os.SameFile(served, now) && served.ModTime().Equal(now.ModTime()) {
			continue
		}
		served = now
		if err := p.serve(ctx); err != nil {
			p.Record("register again: " + err.Error())
		}
	}
}

// serve starts a new server and registers at the agent. If the agent has ended meanwhile, the call waits for the next
// agent, until Stop.
func (p *Plugin) serve(ctx context.Context) error {
	p.stopServer()
	socket := filepath.Join(p.dir(), p.name())
	_ = os.Remove(socket)
	l, err := unixsocket.Listen(socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(s, p)
	registration.RegisterRegistrationServer(s, p)
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	p.done.Go(func() { _ = s.Serve(l) }) // until stopServer
	if ctx.Err() != nil {
		p.stopServer()
		return ctx.Err()
	}
	if p.opts.Registry != "" {
		return nil
	}
	conn, err := grpc.NewClient("unix:"+p.agentSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(unixsocket.DialTarget))
	if err != nil {
		return err
	}
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.name(), ResourceName: p.opts.Resource,
	}, grpc.WaitForReady(true))
	return errors.Join(err, conn.Close())
}

// GetInfo describes the plugin to an agent that has discovered it in Registry.
func (p *Plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DevicePlugin, Name: p.opts.Resource,
		SupportedVersions: pluginapi.SupportedVersions[:]}, nil
}

// NotifyRegistrationStatus records the outcome of the registration as a call.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	p.Record(strings.TrimSpace(fmt.Sprint("Registered ", s.GetPluginRegistered(), " ", s.GetError())))
	return &registration.RegistrationStatusResponse{}, nil
}

func (p *Plugin) stopServer() {
	p.mu.Lock()
	s := p.server
	p.server = nil
	p.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// Stop ends the plugin as if its process was killed.
func (p *Plugin) Stop() {
	_ = p.watcher.Close()
	p.stop()
	p.Hang("", false)
	p.stopServer()
	p.done.Wait()
}

// SetHealthy changes the health of a device.
func (p *Plugin) SetHealthy(id string, healthy bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.devices, func(d *pluginapi.Device) bool { return d.ID == id })
	if i < 0 {
		return fmt.Errorf("set the health of device %q: the plugin has no such device", id)
	}
	p.devices = slices.Clone(p.devices)
	p.devices[i] = &pluginapi.Device{ID: id, Topology: p.devices[i].Topology, Health: pluginapi.Unhealthy}
	if healthy {
		p.devices[i].Health = pluginapi.Healthy
	}
	p.notify()
	return nil
}

// Hang makes calls of a method hang, or ends that. The method "" stands for all methods that hang, and ends them.
func (p *Plugin) Hang(method string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if method == "" {
		clear(p.hang)
	} else {
		p.hang[method] = on
	}
	p.notify()
}

// Refuse makes calls of a method fail, or succeed again.
func (p *Plugin) Refuse(method string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse[method] = on
}

// notify wakes all goroutines that wait for a change. The caller holds mu.
func (p *Plugin) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// recordCall records a call, waits while the method hangs, and returns an error if the method refuses. Each method
// that Hang and Refuse can change begins with it.
func (p *Plugin) recordCall(ctx context.Context, method string, ids []string) error {
	p.Record(strings.TrimSpace(method + " " + strings.Join(slices.Sorted(slices.Values(ids)), ",")))
	for {
		p.mu.Lock()
		changed, hangs, refuses := p.changed, p.hang[method], p.refuse[method]
		p.mu.Unlock()
		if refuses {
			return errors.New("the sample plugin was told to refuse")
		}
		if !hangs {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// GetDevicePluginOptions implements the API.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: p.opts.PreStart,
		GetPreferredAllocationAvailable: p.opts.Preferred}, nil
}

// ListAndWatch implements the API.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	var sent []*pluginapi.Device
	for {
		p.mu.Lock()
		changed, devices := p.changed, p.devices
		p.mu.Unlock()
		if sent == nil || !slices.Equal(sent, devices) {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
			sent = devices
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// GetPreferredAllocation implements the API.
func (p *Plugin) GetPreferredAllocation(ctx context.Context,
	r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	c := r.ContainerRequests[0]
	if err := p.recordCall(ctx, "GetPreferredAllocation", c.AvailableDeviceIDs); err != nil {
		return nil, err
	}
	ids := slices.Clone(c.MustIncludeDeviceIDs)
	for _, id := range slices.Backward(slices.Sorted(slices.Values(c.AvailableDeviceIDs))) {
		if len(ids) < int(c.AllocationSize) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return &pluginapi.PreferredAllocationResponse{
		ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{{DeviceIDs: ids}}}, nil
}

// Allocate implements the API. Containers get the devices' names in a variable. Each device is /dev/zero under the
// device's name, or a CDI name if Options.CDI is set.
func (p *Plugin) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	ids := slices.Sorted(slices.Values(r.ContainerRequests[0].DevicesIds))
	if err := p.recordCall(ctx, "Allocate", ids); err != nil {
		return nil, err
	}
	c := &pluginapi.ContainerAllocateResponse{
		Envs:        map[string]string{strings.ToUpper(p.prefix()) + "_DEVICES": strings.Join(ids, ",")},
		Annotations: map[string]string{"example.com/" + p.prefix(): strings.Join(ids, ",")},
	}
	for _, id := range ids {
		if p.opts.CDI != "" {
			c.CdiDevices = append(c.CdiDevices, &pluginapi.CDIDevice{Name: p.opts.CDI + "=" + id})
			continue
		}
		c.Devices = append(c.Devices,
			&pluginapi.DeviceSpec{ContainerPath: "/dev/" + id, HostPath: "/dev/zero", Permissions: "rw"})
	}
	if p.opts.Mount != "" {
		c.Mounts = append(c.Mounts,
			&pluginapi.Mount{ContainerPath: "/run/" + p.prefix(), HostPath: p.opts.Mount, ReadOnly: true})
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{c}}, nil
}

// PreStartContainer implements the API.
func (p *Plugin) PreStartContainer(ctx context.Context,
	r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	if err := p.recordCall(ctx, "PreStartContainer", r.DevicesIds); err != nil {
		return nil, err
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

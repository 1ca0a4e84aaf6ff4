// Package deviceplugin is a device plugin (v1beta1) of devices that do not exist,
// for tests.
package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
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
)

// Options of a Plugin. Its devices are called PREFIX-0, PREFIX-1, ..., after the
// last part of the resource's name.
type Options struct {
	// Dir has the socket to register at, and gets the plugin's own.
	Dir string
	// Registry is plugins_registry. A plugin that has it serves there, where it is
	// found, and has no use for Dir.
	Registry string
	Resource string
	Devices  int
	// NUMA is on how many nodes they are, in turns; 0: it does not say.
	NUMA int
	// Preferred: it would rather give those with high ids.
	Preferred bool
	// PreStart asks for PreStartContainer before each start.
	PreStart bool
	// CDI is the kind of the names that it answers with, VENDOR/CLASS; "" for none.
	CDI string
	// Mount is a directory of the host that containers get at /run/PREFIX; "" for none.
	Mount string
}

// Plugin serves until Stop, and registers again whenever the agent's socket is new.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer
	opts    Options
	watcher *fsnotify.Watcher
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	server  *grpc.Server
	devices []*pluginapi.Device
	changed chan struct{} // closed at each change of devices
	hang    map[string]bool
	refuse  map[string]bool
	calls   []string
}

// Start serves, and registers if there is an agent. Without one it waits for it.
func Start(o Options) (*Plugin, error) {
	p := &Plugin{opts: o, changed: make(chan struct{}), hang: map[string]bool{}, refuse: map[string]bool{}}
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
	if _, statErr := os.Stat(p.agent()); statErr == nil || o.Registry != "" {
		err = p.begin(ctx)
	}
	p.done.Go(func() { p.watch(ctx) })
	return p, err
}

func (p *Plugin) prefix() string { return p.opts.Resource[strings.LastIndex(p.opts.Resource, "/")+1:] }
func (p *Plugin) dir() string    { return cmp.Or(p.opts.Registry, p.opts.Dir) }
func (p *Plugin) agent() string  { return filepath.Join(p.opts.Dir, "kubelet.sock") }
func (p *Plugin) name() string   { return "test-" + p.prefix() + ".sock" }

func (p *Plugin) watch(ctx context.Context) {
	for e := range p.watcher.Events {
		if e.Name == p.agent() && e.Has(fsnotify.Create) {
			if err := p.begin(ctx); err != nil {
				p.note("begin: " + err.Error())
			}
		}
	}
}

// begin serves anew and registers, unless it is stopped meanwhile: the agent may be
// gone again.
func (p *Plugin) begin(ctx context.Context) error {
	p.end()
	socket := filepath.Join(p.dir(), p.name())
	_ = os.Remove(socket)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(s, p)
	registration.RegisterRegistrationServer(s, p)
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	p.done.Go(func() { _ = s.Serve(l) }) // until end stops it
	if ctx.Err() != nil {
		p.end()
		return ctx.Err()
	}
	if p.opts.Registry != "" {
		return nil
	}
	conn, err := grpc.NewClient("unix:"+p.agent(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.name(), ResourceName: p.opts.Resource,
	}, grpc.WaitForReady(true))
	return errors.Join(err, conn.Close())
}

// GetInfo is for who finds it in Registry.
func (p *Plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DevicePlugin, Name: p.opts.Resource,
		SupportedVersions: pluginapi.SupportedVersions[:]}, nil
}

// NotifyRegistrationStatus notes what became of it.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	p.note(strings.TrimSpace(fmt.Sprint("Registered ", s.GetPluginRegistered(), " ", s.GetError())))
	return &registration.RegistrationStatusResponse{}, nil
}

func (p *Plugin) end() {
	p.mu.Lock()
	s := p.server
	p.server = nil
	p.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// Stop ends it, as if its process was killed.
func (p *Plugin) Stop() {
	_ = p.watcher.Close()
	p.stop()
	p.Hang("", false)
	p.end()
	p.done.Wait()
}

// SetHealthy changes the health of a device.
func (p *Plugin) SetHealthy(id string, healthy bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.devices, func(d *pluginapi.Device) bool { return d.ID == id })
	if i < 0 {
		return fmt.Errorf("there is no device %q", id)
	}
	p.devices = slices.Clone(p.devices)
	p.devices[i] = &pluginapi.Device{ID: id, Topology: p.devices[i].Topology, Health: pluginapi.Unhealthy}
	if healthy {
		p.devices[i].Health = pluginapi.Healthy
	}
	p.tell()
	return nil
}

// Hang has a method not answer, or answer again. "" is all that hang.
func (p *Plugin) Hang(method string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if method == "" {
		clear(p.hang)
	} else {
		p.hang[method] = on
	}
	p.tell()
}

// Refuse has a method fail, or succeed again.
func (p *Plugin) Refuse(method string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse[method] = on
}

// tell wakes who waits for a change. The caller holds mu.
func (p *Plugin) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Calls are what it was asked so far, each a method and its devices.
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *Plugin) note(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
	p.tell()
}

// Await returns when it has been asked this, or ctx ends.
func (p *Plugin) Await(ctx context.Context, call string) error {
	for {
		p.mu.Lock()
		changed, there := p.changed, slices.Contains(p.calls, call)
		p.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the plugin was not asked %q but %q", call, p.Calls())
		}
	}
}

// asked is the beginning of each method: it may hang or fail.
func (p *Plugin) asked(ctx context.Context, method string, ids []string) error {
	p.note(strings.TrimSpace(method + " " + strings.Join(slices.Sorted(slices.Values(ids)), ",")))
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
	if err := p.asked(ctx, "GetPreferredAllocation", c.AvailableDeviceIDs); err != nil {
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

// Allocate implements the API. Containers get the device's names in a variable,
// /dev/zero in the place of each, and what the options say.
func (p *Plugin) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	ids := slices.Sorted(slices.Values(r.ContainerRequests[0].DevicesIds))
	if err := p.asked(ctx, "Allocate", ids); err != nil {
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
	if err := p.asked(ctx, "PreStartContainer", r.DevicesIds); err != nil {
		return nil, err
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

package endpoint

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inflight"
	"github.com/berth-run/berth/internal/runtime/network/lease"
	"github.com/berth-run/berth/internal/runtime/network/link"
	"github.com/berth-run/berth/internal/runtime/network/nat"
	"github.com/berth-run/berth/internal/runtime/network/shape"
)

// Config configures the endpoints of a bridge.
type Config struct {
	// Bridge is the name of the bridge.
	Bridge string
	// Leases is the directory with the leases of pods. Only this package writes there.
	Leases string
	// Log is never nil.
	Log *slog.Logger
}

// errClosed is the error of a removal that would begin after Close.
var errClosed = errors.New("the pod network is closed; the next agent removes the pod's devices")

// Endpoints are the pods of the built-in network.
type Endpoints struct {
	config   Config
	leases   *lease.Book
	table    nat.Table
	nftables bool // set by Restore

	filter sync.Mutex      // orders changes of the packet filter table
	ending map[string]bool // pods whose elements have been removed from the table, guarded by filter

	background inflight.Gate // removals of devices
	removing   sync.Mutex
	removals   map[string]*removal // by the sandbox's ID, guarded by removing
}

// New allocates the endpoints of a bridge. Restore finds the endpoints of an earlier agent.
func New(c Config) *Endpoints {
	return &Endpoints{config: c, leases: lease.New(c.Leases), table: nat.New(c.Bridge), ending: map[string]bool{},
		removals: map[string]*removal{}}
}

// Request lists what a pod needs besides addresses.
type Request struct {
	Ports  []nat.Port
	Limits shape.Limits
}

// Restore finds the pods of an earlier agent. A lease whose device does not exist is from before a reboot, or from an
// agent that was killed early, and is removed. A device without a lease gets one from what the kernel shows. Call
// it before any pod starts. nftables says that the kernel has nftables.
func (e *Endpoints) Restore(nftables bool) error {
	e.nftables = nftables
	damaged, err := e.leases.Load()
	if err != nil {
		return err
	}
	if len(damaged) > 0 {
		e.config.Log.Error("leases of pod addresses are damaged, reading them from the kernel", "err",
			errors.Join(damaged...))
	}
	devices, err := link.List(e.config.Bridge)
	if err != nil {
		return err
	}
	var ports map[netip.Addr][]nat.Port
	if e.nftables {
		if ports, err = e.table.Ports(); err != nil {
			return err
		}
	}
	stale, lost := compare(e.leases.All(), devices, ports)
	for id, l := range lost {
		if err := e.leases.Restore(id, l); err != nil {
			return err
		}
	}
	for id, l := range stale {
		if err := errors.Join(e.removeFromTable(id, l), e.removeDevices(id, l)); err != nil {
			return err
		}
	}
	if len(lost) > 0 || len(stale) > 0 {
		e.config.Log.Info("leases of pod addresses compared with the kernel", "restored", len(lost),
			"removed", len(stale))
	}
	if len(e.leases.All()) == 0 || !e.nftables {
		return nil
	}
	return e.WriteTable()
}

// WriteTable writes the packet filter table with all pods.
func (e *Endpoints) WriteTable() error {
	e.filter.Lock()
	defer e.filter.Unlock()
	return e.writeTableLocked()
}

func (e *Endpoints) writeTableLocked() error {
	var pods []nat.Pod
	for id, l := range e.leases.All() {
		if !e.ending[id] {
			pods = append(pods, l.Pod(id))
		}
	}
	return e.table.Replace(pods)
}

// Attach attaches a pod to a bridge, with one address of each range. used are addresses that pods without a lease have.
// It returns the addresses and the pod's Ethernet address. After an error, Detach removes what it has made.
func (e *Endpoints) Attach(ctx context.Context, bridge netlink.Link, ranges []netip.Prefix, used []netip.Addr,
	pod Pod, r Request) ([]netip.Prefix, net.HardwareAddr, error) {
	l, err := e.leases.Take(pod.ID, ranges, used, lease.Lease{Ports: r.Ports, Egress: r.Limits.Egress > 0})
	if err != nil {
		return nil, nil, err
	}
	device, mac, err := link.Attach(ctx, bridge, link.Pod{ID: pod.ID, Addresses: l.Addresses}, pod.Namespace)
	if err != nil {
		return nil, nil, err
	}
	if err := shape.Apply(device, pod.ID, r.Limits); err != nil {
		return nil, nil, err
	}
	if err := e.addToTable(pod.ID, l); err != nil {
		return nil, nil, err
	}
	if err := nat.Forget(l.Pod(pod.ID)); err != nil {
		e.config.Log.Warn("UDP clients of the pod that had a host port before may not reach the new one for minutes",
			"sandbox", pod.ID, "err", err)
	}
	return l.Addresses, mac, nil
}

// Pod is a sandbox.
type Pod struct {
	ID        string
	Namespace string // a file of its network namespace
}

// addToTable adds a pod to the packet filter table, which it writes again if another program has removed it.
func (e *Endpoints) addToTable(id string, l lease.Lease) error {
	e.filter.Lock()
	defer e.filter.Unlock()
	err := e.table.Add(l.Pod(id))
	if errors.Is(err, unix.ENOENT) {
		e.config.Log.Warn("the packet filter table of pods was removed by another program, it is written again",
			"table", e.table.Name())
		err = e.writeTableLocked()
	}
	return err
}

// Detach removes a pod from the built-in network. leased is false if the pod is not on it. When Detach returns, the
// packet filter has no element of the pod any more. The removal of a device takes the kernel several times as long, so
// it goes on in the background. The pod has its lease until then. Await waits for it. Detach fails after Close, and the
// next agent removes the rest.
func (e *Endpoints) Detach(id string) (leased bool, err error) {
	l, ok := e.leases.Get(id)
	if !ok {
		return false, nil
	}
	if err := e.removeFromTable(id, l); err != nil {
		return true, err
	}
	e.removing.Lock()
	defer e.removing.Unlock()
	if e.removals[id] != nil {
		return true, nil
	}
	if !e.background.Enter() {
		return true, errClosed
	}
	r := &removal{ended: make(chan struct{})}
	e.removals[id] = r
	go func() {
		defer e.background.Leave()
		defer close(r.ended)
		r.err = e.removeDevices(id, l)
	}()
	return true, nil
}

// removal is the removal of a pod's devices in the background.
type removal struct {
	ended chan struct{}
	err   error // set before ended is closed
}

// Await waits until the devices of a pod are removed, if Detach has begun with it. After an error, Detach tries again.
func (e *Endpoints) Await(id string) error {
	e.removing.Lock()
	r := e.removals[id]
	e.removing.Unlock()
	if r == nil {
		return nil
	}
	<-r.ended
	e.removing.Lock()
	defer e.removing.Unlock()
	if e.removals[id] == r {
		delete(e.removals, id)
	}
	return r.err
}

// Close waits for the removals in the background. Detach begins no further ones.
func (e *Endpoints) Close() { <-e.background.Close() }

// removeDevices removes the devices of a pod, and then its lease.
func (e *Endpoints) removeDevices(id string, l lease.Lease) error {
	if err := link.Detach(id); err != nil {
		return err
	}
	if l.Egress {
		if err := shape.Remove(id); err != nil {
			return err
		}
	}
	if err := e.leases.Release(id); err != nil {
		return err
	}
	e.filter.Lock()
	delete(e.ending, id)
	e.filter.Unlock()
	return nil
}

// removeFromTable removes a pod from the packet filter table. If an element is missing, because the pod's start failed
// or another program has removed the table, it writes the table without the pod.
func (e *Endpoints) removeFromTable(id string, l lease.Lease) error {
	if !e.nftables {
		return nil
	}
	e.filter.Lock()
	defer e.filter.Unlock()
	if e.ending[id] {
		return nil
	}
	e.ending[id] = true
	err := e.table.Remove(l.Pod(id))
	if errors.Is(err, unix.ENOENT) {
		err = e.writeTableLocked()
	}
	if err != nil {
		delete(e.ending, id)
		return err
	}
	e.leases.ClosePorts(id)
	return nil
}

// Leased reports whether a pod has a lease.
func (e *Endpoints) Leased(id string) bool {
	_, ok := e.leases.Get(id)
	return ok
}

// IDs returns the IDs of all pods with a lease.
func (e *Endpoints) IDs() []string { return slices.Collect(maps.Keys(e.leases.All())) }

// Addresses returns the addresses of all pods.
func (e *Endpoints) Addresses() []netip.Addr { return e.leases.Addresses() }

// Ports reports whether any pod has a host port.
func (e *Endpoints) Ports() bool { return e.leases.Ports() }

// DeleteTable removes the packet filter table. Call it only when no pod is left.
func (e *Endpoints) DeleteTable() error {
	if !e.nftables {
		return nil
	}
	return e.table.Delete()
}

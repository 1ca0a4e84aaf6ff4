package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/runtime/network/nat"
)

// format is the format of leases on disk.
var format = checkpoint.Format{Version: 1}

// Lease has the addresses, host ports and limits of a sandbox in the built-in network.
type Lease struct {
	// Number counts the leases. The next addresses follow the addresses of the newest lease.
	Number uint64
	// Addresses are the pod's addresses with the lengths of their ranges, at most one of each family.
	Addresses []netip.Prefix
	// Ports are the pod's host ports.
	Ports []nat.Port `json:",omitempty"`
	// Egress says that a device limits what the pod sends (package shape).
	Egress bool `json:",omitzero"`
}

// Check implements checkpoint.Checker. The packet filter refuses an address that is none, and with it all pods.
func (l Lease) Check() error {
	if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return !p.IsValid() }) {
		return errors.New("a lease has an address that is none")
	}
	return nil
}

// Book has the leases of all sandboxes, in memory and on disk.
type Book struct {
	files *checkpoint.Dir[Lease]

	mu     sync.Mutex
	leases map[string]Lease // by the sandbox's ID
	last   Lease            // the newest one, also if it has been released
}

// New allocates a book with its files in a directory. Load reads them.
func New(dir string) *Book {
	return &Book{files: checkpoint.NewDir[Lease](dir, format), leases: map[string]Lease{}}
}

// Load reads the leases of an earlier agent. damaged has an error for each file that cannot be used and was moved
// aside.
func (b *Book) Load() (damaged []error, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, err := b.files.LoadAll()
	damaged, err = checkpoint.Damaged(err)
	if err != nil {
		return damaged, fmt.Errorf("read leases of pod addresses: %w", err)
	}
	for id, l := range all {
		b.put(id, l)
	}
	return damaged, nil
}

// put adds a lease in memory.
func (b *Book) put(id string, l Lease) {
	b.leases[id] = l
	if l.Number >= b.last.Number {
		b.last = l
	}
}

// Take leases one address of each range to a sandbox, with what else is in l, and writes it to disk. Addresses in taken
// belong to pods that have no lease.
func (b *Book) Take(id string, ranges []netip.Prefix, taken []netip.Addr, l Lease) (Lease, error) {
	l, err := b.reserve(id, ranges, taken, l)
	if err != nil {
		return Lease{}, err
	}
	if err := b.files.Save(id, l); err != nil {
		return Lease{}, errors.Join(fmt.Errorf("lease addresses to sandbox %s: %w", id, err), b.Release(id))
	}
	return l, nil
}

func (b *Book) reserve(id string, ranges []netip.Prefix, taken []netip.Addr, l Lease) (Lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.leases[id]; ok {
		return Lease{}, fmt.Errorf("sandbox %s has addresses already", id)
	}
	used := map[netip.Addr]bool{}
	for _, a := range taken {
		used[a] = true
	}
	for owner, other := range b.leases {
		for _, p := range l.Ports {
			if slices.ContainsFunc(other.Ports, p.Conflicts) {
				return Lease{}, fmt.Errorf("host port %d leads to sandbox %s; next: end that pod", p.HostPort, owner)
			}
		}
		for _, a := range other.Addresses {
			used[a.Addr()] = true
		}
	}
	l.Number, l.Addresses = b.last.Number+1, nil
	for _, r := range ranges {
		a, ok := next(r, b.last.in(r), used)
		if !ok {
			return Lease{}, fmt.Errorf("no address of %s is free; next: end pods, or set podCIDR to a larger range", r)
		}
		l.Addresses = append(l.Addresses, netip.PrefixFrom(a, r.Bits()))
	}
	b.put(id, l)
	return l, nil
}

// in returns the lease's address in a range, or none.
func (l Lease) in(r netip.Prefix) netip.Addr {
	for _, a := range l.Addresses {
		if r.Contains(a.Addr()) {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

// Restore adds a lease whose file is lost, and writes it again.
func (b *Book) Restore(id string, l Lease) error {
	b.mu.Lock()
	b.put(id, l)
	b.mu.Unlock()
	return b.files.Save(id, l)
}

// ClosePorts frees the host ports of a sandbox for others. Its file keeps them until Release.
func (b *Book) ClosePorts(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.leases[id]; ok {
		l.Ports = nil
		b.leases[id] = l
	}
}

// Release ends the lease of a sandbox. Without one it does nothing. Its file may be back after a power cut, and the
// next start then removes it, because no device has its addresses.
func (b *Book) Release(id string) error {
	if err := b.files.DeleteUnsynced(id); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.leases, id)
	return nil
}

// Get returns the lease of a sandbox.
func (b *Book) Get(id string) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.leases[id]
	return l, ok
}

// All returns a copy of all leases, by the sandboxes' IDs.
func (b *Book) All() map[string]Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]Lease, len(b.leases))
	for id, l := range b.leases {
		all[id] = l
	}
	return all
}

// Addresses returns all leased addresses.
func (b *Book) Addresses() (all []netip.Addr) {
	for _, l := range b.All() {
		for _, a := range l.Addresses {
			all = append(all, a.Addr())
		}
	}
	return all
}

// Ports reports whether any lease has a host port.
func (b *Book) Ports() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.leases {
		if len(l.Ports) > 0 {
			return true
		}
	}
	return false
}

// Pod describes the sandbox of a lease to the packet filter.
func (l Lease) Pod(id string) nat.Pod {
	p := nat.Pod{ID: id, Ports: slices.Clone(l.Ports)}
	for _, a := range l.Addresses {
		p.Addresses = append(p.Addresses, a.Addr())
	}
	return p
}

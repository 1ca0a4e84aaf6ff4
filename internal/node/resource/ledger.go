package resource

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/node/resource/device"
)

// LedgerOptions of a Ledger.
type LedgerOptions struct {
	// Dir has a file for each pod that holds something.
	Dir string
	// Node is the machine and what the configuration says. Its devices do not count.
	Node Node
	Log  *slog.Logger
}

// Ledger is the table of what pods hold. Its writer is admission; the device step
// may exchange ids (SetDevices). What is in it is on disk, synced, before anybody
// sees it. Pods that hold nothing cost nothing.
type Ledger struct {
	log  *slog.Logger
	disk *checkpoint.Dir[record]
	node Node

	// writing orders changes, and with them the files.
	writing sync.Mutex

	mu   sync.RWMutex
	held Held
	told []chan struct{}
}

// NewLedger makes an empty ledger.
func NewLedger(o LedgerOptions) *Ledger {
	return &Ledger{log: o.Log, node: o.Node, disk: checkpoint.NewDir[record](o.Dir, checkpoint.Format{Version: 1}),
		held: Held{}}
}

// Lost is a pod whose allocation could not be kept, and why.
type Lost struct {
	UID types.UID
	Why error
}

// Load reads what an earlier agent kept, and keeps of it what fits the machine as
// it is now. The pods of which something does not fit are returned: that part is
// allocated anew when they are admitted. The error names files that were damaged;
// what could be read counts also then.
func (l *Ledger) Load() ([]Lost, error) {
	all, err := l.disk.LoadAll()
	found := map[types.UID]Allocation{}
	var lost []Lost
	for uid, r := range all {
		a, why := r.allocation()
		if why != nil {
			lost = append(lost, Lost{types.UID(uid), why})
			err = errors.Join(err, l.disk.Delete(uid))
			continue
		}
		found[types.UID(uid)] = a
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	more, saveErr := l.adopt(found, true)
	return append(lost, more...), errors.Join(err, saveErr)
}

// Rebuild takes over what running containers were found to have: the parts (CPUs,
// memory, each resource's devices) of which the ledger knows nothing. It returns
// the pods of which something does not fit beside the others.
func (l *Ledger) Rebuild(live map[types.UID]Allocation) ([]Lost, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.adopt(live, false)
}

// TakeOver takes over what another agent has written down since this ledger was
// kept: it counts, and what is here counts beside it as far as both fit. The pods of
// which something does not are returned.
func (l *Ledger) TakeOver(found map[types.UID]Allocation) ([]Lost, error) {
	if len(found) == 0 {
		return nil, nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	own := l.All()
	l.publish(Held{})
	lost, err := l.adopt(found, false)
	more, moreErr := l.adopt(own, false)
	return append(lost, more...), errors.Join(err, moreErr)
}

// adopt takes what fits, in the order of the pods' ids; writing is held. saved
// says that what is found is on disk as it is.
func (l *Ledger) adopt(found map[types.UID]Allocation, saved bool) (lost []Lost, err error) {
	held := l.All()
	for _, uid := range slices.Sorted(maps.Keys(found)) {
		own := held[uid]
		a, more := own.with(found[uid])
		if !more {
			continue
		}
		others := maps.Clone(held)
		delete(others, uid)
		a, why := l.node.fitting(others, a)
		if why != nil {
			l.log.Warn("not all that a pod held fits this machine as it is now", "pod", uid, "err", why)
			lost = append(lost, Lost{uid, why})
			if !own.IsEmpty() {
				continue // what is known stays
			}
		}
		switch {
		case a.IsEmpty():
			err = errors.Join(err, l.disk.Delete(string(uid)))
			continue
		case why != nil || !saved:
			err = errors.Join(err, l.disk.Save(string(uid), recordOf(a)))
		}
		held[uid] = a
	}
	l.publish(held)
	return lost, err
}

// Get is what a pod holds; false: nothing.
func (l *Ledger) Get(uid types.UID) (Allocation, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	a, ok := l.held[uid]
	return a, ok
}

// Shared are the CPUs that containers without CPUs of their own run on; empty
// when the policy gives none away.
func (l *Ledger) Shared() cpuset.CPUSet {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.node.Shared(l.held)
}

// All is what all pods hold. The map is the caller's.
func (l *Ledger) All() Held {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return maps.Clone(l.held)
}

// Commit books an allocation, in place of the pod's last one. When it fails
// nothing has changed.
func (l *Ledger) Commit(uid types.UID, a Allocation) error {
	if a.IsEmpty() {
		return l.Release(uid)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if now, _ := l.Get(uid); reflect.DeepEqual(recordOf(now), recordOf(a)) {
		return nil
	}
	return l.put(uid, a.Clone())
}

// put saves and publishes; writing is held.
func (l *Ledger) put(uid types.UID, a Allocation) error {
	if err := l.disk.Save(string(uid), recordOf(a)); err != nil {
		return fmt.Errorf("book what pod %s is given: %w", uid, err)
	}
	held := l.All()
	held[uid] = a
	l.publish(held)
	return nil
}

// Release frees what a pod holds; one that holds nothing is fine. What it held is
// free even if its file stays.
func (l *Ledger) Release(uid types.UID) error {
	if _, ok := l.Get(uid); !ok {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	err := l.disk.Delete(string(uid))
	held := l.All()
	delete(held, uid)
	l.publish(held)
	if err != nil {
		return fmt.Errorf("release what pod %s held: %w", uid, err)
	}
	return nil
}

// ReleaseMemory frees the memory of a container: an init container's, when the next
// one starts. Its CPUs and devices are its pod's until that is gone.
func (l *Ledger) ReleaseMemory(uid types.UID, container string) error {
	return l.change(uid, container, func(g *Given) { g.Memory = nil })
}

// SetDevices exchanges the devices of a container that holds some for those that
// its plugin prefers.
func (l *Ledger) SetDevices(uid types.UID, container string, name corev1.ResourceName, ids []device.ID) error {
	return l.change(uid, container, func(g *Given) {
		if g.Devices == nil {
			g.Devices = map[corev1.ResourceName][]device.ID{}
		}
		g.Devices[name] = slices.Clone(ids)
	})
}

// change has f change a copy of what a container holds. One that holds nothing is
// left alone.
func (l *Ledger) change(uid types.UID, container string, f func(*Given)) error {
	if a, _ := l.Get(uid); a.Containers[container].IsEmpty() {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	a, _ := l.Get(uid)
	a = a.Clone()
	g, ok := a.Containers[container]
	if !ok {
		return nil
	}
	f(&g)
	delete(a.Containers, container)
	if !g.IsEmpty() {
		a.Containers[container] = g
	}
	return l.put(uid, a)
}

// Subscribe gives a channel that has an element after each change until it is
// taken. It is for the time of wiring: there is no way back.
func (l *Ledger) Subscribe() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{}, 1)
	l.told = append(l.told, c)
	return c
}

// publish makes held the table and tells so.
func (l *Ledger) publish(held Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	for _, c := range l.told {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

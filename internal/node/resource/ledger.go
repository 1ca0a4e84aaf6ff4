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
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/node/resource/device"
)

// LedgerOptions configure a Ledger.
type LedgerOptions struct {
	// Dir holds one file for each pod that holds something.
	Dir string
	// Node is the machine and the policy. The ledger does not use Node.Devices.
	Node Node
	Log  *slog.Logger
}

// Ledger is the table of the resources that pods hold. Admission writes it; the device step may exchange device IDs
// (SetDevices). Every entry is synced to disk before a reader sees it. Pods that hold nothing have no entry and no
// file.
type Ledger struct {
	log  *slog.Logger
	disk *checkpoint.Dir[record]
	node Node

	// writing serializes changes of the table and of its files.
	writing sync.Mutex

	mu          sync.RWMutex
	held        Held
	subscribers []wake.Signal
	changed     wake.Broadcast
}

// NewLedger returns an empty ledger. Load fills it.
func NewLedger(o LedgerOptions) *Ledger {
	return &Ledger{log: o.Log, node: o.Node, disk: checkpoint.NewDir[record](o.Dir, checkpoint.Format{Version: 1}),
		held: Held{}}
}

// Lost is a pod whose allocation could not be kept in full, and the reason.
type Lost struct {
	UID types.UID
	Why error
}

// Load reads the allocations that an earlier agent saved and keeps the parts that still fit this machine. It returns
// the pods that lost a part; admission allocates that part again. The error names damaged files. Everything readable is
// loaded even if there is an error.
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

// Rebuild adds the resources that running containers were found to hold. It adds only parts (CPUs, memory, the devices
// of one resource) that the ledger does not have yet. It returns the pods whose found parts conflict with other pods.
func (l *Ledger) Rebuild(live map[types.UID]Allocation) ([]Lost, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.adopt(live, false)
}

// TakeOver merges allocations that another agent recorded while this ledger was not in use. Those take precedence; this
// ledger's own entries are added where they do not conflict. It returns the pods that lost a part.
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

// adopt merges found into the table, pods in order of their UIDs, and drops parts that do not fit. The caller holds
// l.writing. saved is true if the files on disk already hold found.
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
			l.log.Warn("cannot book all resources of a running pod, booking the others", "pod", uid, "err", why)
			lost = append(lost, Lost{uid, why})
			if !own.IsEmpty() {
				continue // the earlier entry stays
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

// Get returns the allocation of a pod, and false if it holds nothing.
func (l *Ledger) Get(uid types.UID) (Allocation, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	a, ok := l.held[uid]
	return a, ok
}

// Shared are the CPUs of all containers without exclusive CPUs. It is empty if the policy allocates no exclusive CPUs.
func (l *Ledger) Shared() cpuset.CPUSet {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.node.Shared(l.held)
}

// All returns the allocations of all pods. The caller may modify the map, but not the allocations in it.
func (l *Ledger) All() Held {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return maps.Clone(l.held)
}

// Commit records an allocation and replaces the previous one of the pod. After an error the table is unchanged.
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

// put saves the allocation to disk and then publishes it. The caller holds l.writing.
func (l *Ledger) put(uid types.UID, a Allocation) error {
	if err := l.disk.Save(string(uid), recordOf(a)); err != nil {
		return fmt.Errorf("save the allocation of pod %s: %w", uid, err)
	}
	held := l.All()
	held[uid] = a
	l.publish(held)
	return nil
}

// Release frees everything that a pod holds. It is harmless for a pod that holds nothing. The resources are free even
// if the file cannot be deleted.
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
		return fmt.Errorf("release the allocation of pod %s: %w", uid, err)
	}
	return nil
}

// ReleaseMemory frees the memory of one container. It is called for an init container when the next one starts. CPUs
// and devices stay with the pod until the pod ends.
func (l *Ledger) ReleaseMemory(uid types.UID, container string) error {
	return l.change(uid, container, func(g *Holding) { g.Memory = nil })
}

// SetDevices replaces the devices of a container by those that the device plugin prefers. A container that holds
// nothing is not changed.
func (l *Ledger) SetDevices(uid types.UID, container string, name corev1.ResourceName, ids []device.ID) error {
	return l.change(uid, container, func(g *Holding) {
		if g.Devices == nil {
			g.Devices = map[corev1.ResourceName][]device.ID{}
		}
		g.Devices[name] = slices.Clone(ids)
	})
}

// change applies f to a copy of a container's holding and saves the result. It does nothing for a container that holds
// nothing.
func (l *Ledger) change(uid types.UID, container string, f func(*Holding)) error {
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

// Subscribe returns a channel that receives after every change. Changes before a receive are merged into one. Parts
// subscribe when the agent is built; a subscription cannot be ended.
func (l *Ledger) Subscribe() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := wake.New()
	l.subscribers = append(l.subscribers, changed)
	return changed.C()
}

// Changed wakes after every change, and can be left at any time.
func (l *Ledger) Changed() *wake.Broadcast { return &l.changed }

// publish replaces the table and wakes the subscribers.
func (l *Ledger) publish(held Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	for _, s := range l.subscribers {
		s.Wake()
	}
	l.changed.Wake()
}

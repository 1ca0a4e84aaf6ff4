package nodeobject

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
)

// Latest is the Node object as last received from the API server. An Object is its only writer. It is apart from the
// Object because the steps of pods look at it, and an Object needs the steps. On a standalone node nothing is received.
// It is safe for concurrent use.
type Latest struct {
	// Nodes has the object under its name once it was received. The last version stays after the object was deleted.
	Nodes *store.Table[string, *corev1.Node]
	// FactsChanged wakes the Object, to send its status soon because a fact has changed. Changes of conditions do so
	// by themselves.
	FactsChanged wake.Signal

	name     string
	received chan struct{}  // closed with the first object
	changed  wake.Broadcast // of the object

	mu      sync.Mutex // held for each write to Nodes
	gone    bool       // the object was deleted
	doubted bool       // Confirm was called
	asOf    time.Time  // the object is at least as new as this; zero: never confirmed
}

// NewLatest returns the Latest of a node, before its object was received.
func NewLatest(name string) *Latest {
	return &Latest{Nodes: store.New[string, *corev1.Node](), FactsChanged: wake.New(), name: name,
		received: make(chan struct{})}
}

// Newest returns the object as last received, also while the API server is away or after the object was deleted. It is
// nil before the first one was received. The result is shared and must not be changed.
func (l *Latest) Newest() *corev1.Node {
	n, _ := l.Nodes.Get(l.name)
	return n
}

// Received is closed when the object was received from the API server for the first time.
func (l *Latest) Received() <-chan struct{} { return l.received }

// Changed returns a channel that is closed when Newest returns another object than at this call.
func (l *Latest) Changed() <-chan struct{} { return l.changed.C() }

// UpdateSoon computes and sends the status soon, because a fact has changed. Changes of conditions need no call.
func (l *Latest) UpdateSoon() { l.FactsChanged.Wake() }

// Confirm asks the API server whether Newest is the newest. Changed is closed after the answer, even if the object is
// the same. It returns at once.
func (l *Latest) Confirm() {
	l.mu.Lock()
	l.doubted = true
	l.mu.Unlock()
	l.UpdateSoon()
}

// AsOf returns a time when Newest was certainly the newest. It is zero if it was never confirmed.
func (l *Latest) AsOf() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asOf
}

// confirm records that Newest is at least as new as the answer to a request sent at that time. It closes Changed.
func (l *Latest) confirm(requested time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubted, l.asOf = false, requested
	l.changed.Wake()
}

// put stores an object from the API server, and returns the one before it. An object from a list always counts, because
// a list starts anew. Any other object is ignored if it is older than the stored one or known to be deleted.
func (l *Latest) put(n *corev1.Node, list bool) (was *corev1.Node, stored bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was = l.Newest()
	if !list && was != nil && was.UID == n.UID && (l.gone || older(n.ResourceVersion, was.ResourceVersion)) {
		return was, false
	}
	n.ManagedFields = nil
	l.Nodes.Put(l.name, n)
	l.gone = false
	if was == nil {
		close(l.received)
	}
	l.changed.Wake()
	return was, true
}

// end records that the object did not exist at a resource version, and reports whether it existed before. The version
// is empty if the API server said that the object does not exist. A list may be older than the stored object.
func (l *Latest) end(version string) (existed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.Newest()
	if was != nil && version != "" && older(version, was.ResourceVersion) {
		return false
	}
	existed = was != nil && !l.gone
	l.gone = was != nil
	return existed
}

// last returns Newest, whether the object was deleted since, and whether Confirm was called and is not answered.
func (l *Latest) last() (n *corev1.Node, gone, doubted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Newest(), l.gone, l.doubted
}

func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

package csi

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/attachment"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/usage"
	"github.com/berth-run/berth/internal/record/event"
)

// objects reads the objects that pods name from memory. It does not call the API server.
type objects interface {
	PersistentVolume(name string) (*corev1.PersistentVolume, error)
	PersistentVolumeClaim(namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Secret(namespace, name string) (*corev1.Secret, error)
}

// cluster is the part that speaks with the API server.
type cluster interface {
	// Token requests a token of the pod's service account. An empty audience is the API server; life 0 is the API
	// server's default.
	Token(ctx context.Context, p *corev1.Pod, audience string, life time.Duration) (value string, expires time.Time,
		err error)
	// Refresh reads objects of the table again. It does not block.
	Refresh(keys ...object.Key)
	// NodeFull ends a pod because the node cannot attach one more volume. It does not block.
	NodeFull(p *corev1.Pod, message string)
}

// Options of a Kind. Fields are required unless they say otherwise.
type Options struct {
	// Root is the agent's directory.
	Root string
	// Node is this node's name.
	Node string
	// Client has the node's credentials. It is nil on a node without a cluster, where no volume is attached and no
	// driver has a CSIDriver.
	Client kubernetes.Interface
	// StandsIn reports that the API server has been unreachable since the agent started, so that the state on disk
	// stands in for it. No volume is attached meanwhile. nil: never.
	StandsIn *atomic.Bool
	// Objects has the claims and volumes of pods. Its Secrets are used only without a Client or while StandsIn:
	// otherwise a Secret is read from the API server when it is needed.
	Objects objects
	// Cluster is nil on a node without a cluster.
	Cluster cluster
	// Nodes has the Node object of this node. An attachable volume is used only once the API server has accepted it in
	// status.volumesInUse. nil: there is no such check.
	Nodes *store.Table[string, *corev1.Node]
	// InUseChanged is raised when InUse has changed, so that the Node's status is written soon.
	InUseChanged wake.Signal
	// Changed collects the keys that pods may wait for: see driver.KindDriver.
	Changed driver.Changes
	// Label returns the SELinux label for the files of a container with these options: see FileLabel. nil on a host
	// without SELinux.
	Label func(*corev1.SELinuxOptions) (string, error)
	// Health: the condition of volumes that drivers report counts (feature gate CSIVolumeHealth).
	Health bool
	Events event.Sink
	Now    func() time.Time
	Log    *slog.Logger
}

// Kind serves the volumes of CSI drivers. Make it with New, then Run it. Its methods may be called from any goroutine.
type Kind struct {
	o         Options
	drivers   *driver.Registry
	layout    layout
	attacher  attacher
	expander  expander
	targets   lock.Keyed  // by path, held while a volume is published or unpublished
	newVolume wake.Signal // a volume was published

	mu sync.Mutex
	// staged has the StageIDs that this process has staged.
	staged map[string]bool
	// publishContexts are by StageID. A driver's controller returns one when it attaches the volume.
	publishContexts map[string]map[string]string
	// published is by the path that Publish returned.
	published map[string]*published
}

// published is a volume whose Publish has succeeded.
type published struct {
	request volume.Request
	// ctx bounds the background work on the volume. end ends it.
	ctx context.Context
	end context.CancelFunc

	mu sync.Mutex
	// size of the volume on this node; zero before it is known.
	size resource.Quantity
	// offlineOnly: the driver does not expand the volume while it is in use.
	offlineOnly bool
	usage       *usage.Usage // the driver's last answer; nil before the first
	inspected   bool         // at least once
	inspecting  bool
}

// resume continues with what was learned about the volume before it was published again.
func (p *published) resume(previous *published) {
	previous.mu.Lock()
	defer previous.mu.Unlock()
	p.size, p.offlineOnly, p.usage = previous.size, previous.offlineOnly, previous.usage
	p.inspected = previous.inspected
}

// beginInspection reports whether to inspect the volume now. again is set if it may have been inspected before.
func (p *published) beginInspection(again bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inspecting || !again && p.inspected {
		return false
	}
	p.inspecting, p.inspected = true, true
	return true
}

func (p *published) endInspection() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inspecting = false
}

// New makes a Kind without drivers. It does no I/O.
func New(o Options) *Kind {
	drivers := driver.New(driver.Options{Node: o.Node, Client: o.Client, Changed: o.Changed, Events: o.Events,
		Now: o.Now, Log: o.Log})
	l := layout(o.Root)
	table := attachment.New(attachment.Options{Root: o.Root, Node: o.Node, Nodes: o.Nodes, StandsIn: o.StandsIn,
		InUseChanged: o.InUseChanged, Now: o.Now})
	return &Kind{
		o: o, drivers: drivers, layout: l, attacher: attacher{o, drivers, l, table}, expander: expander{o, drivers, l},
		newVolume: wake.New(), staged: map[string]bool{}, publishContexts: map[string]map[string]string{},
		published: map[string]*published{},
	}
}

// Drivers are the drivers of this node.
func (k *Kind) Drivers() *driver.Registry { return k.drivers }

// Dir is the name of the directory for CSI volumes in a pod's directory.
func (*Kind) Dir() string { return dirName }

// Serves reports whether a pod's own volume is a CSI volume (inline ephemeral).
func (*Kind) Serves(v *corev1.Volume) bool { return v.CSI != nil }

// ServesPersistent reports whether a PersistentVolume is a CSI volume.
func (*Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.CSI != nil }

// TargetName is the name of the PersistentVolume, or of the pod's own volume. The kubelet names the volume's directory
// so, with "~" for each slash.
func (*Kind) TargetName(r volume.Request) string { return targetName(r) }

// Features depend on the driver and its CSIDriver object. Publish waits for both.
func (k *Kind) Features(r volume.Request) volume.Features {
	f := volume.Features{Block: r.Persistent != nil, Remote: true,
		ReadOnly: r.Persistent == nil && r.Volume.CSI.ReadOnly != nil && *r.Volume.CSI.ReadOnly}
	name := driverName(r)
	d, err := k.drivers.Get(name)
	object, known := k.drivers.Object(name)
	if err != nil || !known && k.o.Client != nil {
		return f
	}
	f.FSGroup = appliesGroup(object, r) && !d.Can(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	label, err := k.o.label(object, r)
	f.HostLabels = err == nil && label != "" // the mount option sets the label
	return f
}

func driverName(r volume.Request) string {
	if r.Persistent != nil {
		return r.Persistent.Spec.CSI.Driver
	}
	return r.Volume.CSI.Driver
}

// Attachments are the volumes that controllers attach, of drivers and of others.
func (k *Kind) Attachments() *attachment.Table { return k.attacher.table }

// Uses returns the mounted volumes of pods that share a part, from the vol_data.json files. A kubelet writes these too.
func (k *Kind) Uses() (all []volume.Use, err error) { return k.layout.Uses() }

package csi

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/record/event"
)

// objects reads the objects that pods name from memory. It does not call the API server.
type objects interface {
	PersistentVolume(name string) (*corev1.PersistentVolume, error)
	PersistentVolumeClaim(namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Secret(namespace, name string) (*corev1.Secret, error)
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
	StandsIn func() bool
	// Objects has the claims and volumes of pods. Its Secrets are used only without a Client or while StandsIn:
	// otherwise a Secret is read from the API server when it is needed.
	Objects objects
	// Token requests a token of the pod's service account. An empty audience is the API server; life 0 is the API
	// server's default. nil: there are no tokens.
	Token func(ctx context.Context, p *corev1.Pod, audience string, life time.Duration) (value string,
		expires time.Time, err error)
	// Reported returns the status.volumesInUse that the API server has accepted. A volume is used only once it is in
	// that list. nil: there is no such check.
	Reported func() []corev1.UniqueVolumeName
	// InUseChanged is called when InUse has changed, so that the Node's status is written soon. It must not block. It
	// may be nil.
	InUseChanged func()
	// Changed wakes the pods that wait for these keys: see driver.KindDriver. It must not block.
	Changed func(map[object.Key]bool)
	// Refresh reads objects of the table again. It must not block. It may be nil.
	Refresh func(keys ...object.Key)
	// Full ends a pod because the node cannot attach one more volume. It must not block. It may be nil.
	Full func(p *corev1.Pod, message string)
	// Label returns the SELinux label for the files of a container with these options: see FileLabel. nil on a host
	// without SELinux.
	Label  func(*corev1.SELinuxOptions) (string, error)
	Events event.Sink
	Now    func() time.Time
	Log    *slog.Logger
}

// Kind serves the volumes of CSI drivers. Make it with New, then Run it. Its methods may be called from any goroutine.
type Kind struct {
	*attacher
	targets   lock.Keyed  // by path, held while a volume is published or unpublished
	newVolume wake.Signal // a volume was published

	// The attacher's lock guards the fields below.

	// staged has the StageIDs that this process has staged.
	staged map[string]bool
	// publishContexts are by StageID. A driver's controller returns one when it attaches the volume.
	publishContexts map[string]map[string]string
	// published is by the path that Publish returned.
	published map[string]*published
}

// attacher waits until volumes are attached, and reports them as in use so that they stay attached.
type attacher struct {
	o       Options
	drivers *driver.Registry

	mu sync.Mutex
	// inUse are the attached volumes. Their StageIDs are on disk. restored is set if inUse includes the volumes of an
	// earlier agent.
	inUse    map[corev1.UniqueVolumeName]bool
	restored bool
	// nodeChanged is closed and replaced whenever the Node has changed.
	nodeChanged chan struct{}
}

// published is a volume whose Publish has succeeded.
type published struct {
	request volume.Request
	// ctx bounds the background work on the volume. end ends it.
	ctx context.Context
	end context.CancelFunc

	// The attacher's lock guards the fields below.

	// size of the volume on this node; zero before it is known.
	size resource.Quantity
	// offlineOnly: the driver does not expand the volume while it is in use.
	offlineOnly bool
	usage       *Usage // the driver's last answer; nil before the first
	inspected   bool   // at least once
	inspecting  bool
}

// New makes a Kind without drivers. It does no I/O.
func New(o Options) *Kind {
	drivers := driver.New(driver.Options{Node: o.Node, Client: o.Client, Changed: o.Changed, Events: o.Events,
		Now: o.Now, Log: o.Log})
	return &Kind{
		attacher: &attacher{o: o, drivers: drivers, inUse: map[corev1.UniqueVolumeName]bool{},
			nodeChanged: make(chan struct{})},
		newVolume: wake.New(), staged: map[string]bool{}, publishContexts: map[string]map[string]string{},
		published: map[string]*published{},
	}
}

// Drivers are the drivers of this node.
func (k *Kind) Drivers() *driver.Registry { return k.drivers }

// dirName is the kubelet's name of the directory for CSI volumes in a pod's directory.
const dirName = "kubernetes.io~csi"

// Dir is the name of the directory for CSI volumes in a pod's directory.
func (*Kind) Dir() string { return dirName }

// Serves reports whether a pod's own volume is a CSI volume (inline ephemeral).
func (*Kind) Serves(v *corev1.Volume) bool { return v.CSI != nil }

// ServesPersistent reports whether a PersistentVolume is a CSI volume.
func (*Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.CSI != nil }

// TargetName is the name of the PersistentVolume, or of the pod's own volume. The kubelet names the volume's directory
// so.
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
	label, err := k.label(object, r)
	f.HostLabels = err == nil && label != "" // the mount option sets the label
	return f
}

func (k *attacher) standsIn() bool { return k.o.StandsIn != nil && k.o.StandsIn() }

func driverName(r volume.Request) string {
	if r.Persistent != nil {
		return r.Persistent.Spec.CSI.Driver
	}
	return r.Volume.CSI.Driver
}

// label returns the SELinux label to mount a volume with, or "" for none.
func (k *Kind) label(d *storagev1.CSIDriver, r volume.Request) (string, error) {
	if k.o.Label == nil {
		return "", nil
	}
	options, err := labelOf(d, r)
	if err != nil || options == nil {
		return "", err
	}
	return k.o.Label(options)
}

// paths are the places of a volume's shared part.
type paths struct {
	data    string // the directory of vol_data.json
	staging string
	publish string // for a block device: the directory with one published file for each pod
}

func (k *attacher) paths(id identity) paths {
	base := filepath.Join(k.o.Root, "plugins", "kubernetes.io", "csi")
	if id.Block != "" {
		base = filepath.Join(base, "volumeDevices")
		return paths{data: filepath.Join(base, id.Block, "data"), staging: filepath.Join(base, "staging", id.Block),
			publish: filepath.Join(base, "publish", id.Block)}
	}
	base = filepath.Join(base, id.Driver, hash(id.Handle))
	return paths{data: base, staging: filepath.Join(base, "globalmount")}
}

// remove deletes the files of a shared part that is not mounted any more.
func (p paths) remove(id identity) error {
	if id.Block == "" {
		return remove(p.data, filepath.Base(p.staging), dataFile, "."+dataFile)
	}
	return errors.Join(remove(p.staging), remove(p.publish), remove(p.data, dataFile, "."+dataFile),
		remove(filepath.Dir(p.data), "dev"))
}

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
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/csinode"
)

// objects are those of the table, which no call of the API server is made for.
type objects interface {
	PersistentVolume(name string) (*corev1.PersistentVolume, error)
	PersistentVolumeClaim(namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Secret(namespace, name string) (*corev1.Secret, error)
}

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Options of a Kind. Fields are required unless they say otherwise.
type Options struct {
	// Root is the agent's directory.
	Root string
	// Node is this node's name.
	Node string
	// Client is for the API server, with the node's credentials; nil on a node
	// without a cluster: nothing is attached there, and no driver has a CSIDriver.
	Client kubernetes.Interface
	// StandsIn says that the API server is away since the agent began, and that what
	// was kept of it counts. nil: never. Nothing is attached then.
	StandsIn func() bool
	// Objects have the claims and volumes of pods. Secrets are of use without a
	// Client, or while it is away: else they are read when they are needed.
	Objects objects
	// Token asks for a token of the pod's service account; audience "" is the API
	// server, life 0 what that gives. nil: there are none.
	Token func(ctx context.Context, p *corev1.Pod, audience string, life time.Duration) (value string,
		expires time.Time, err error)
	// Reported are the volumes that the Node's status says to be in use; a volume
	// that is attached is used after it is among them. nil: nobody asks.
	Reported func() []corev1.UniqueVolumeName
	// InUseChanged has the Node's status written soon, from InUse; it must not
	// block. May be nil.
	InUseChanged func()
	// Changed has what waits for these keys tried again: see KindDriver. It must not
	// block.
	Changed func(map[object.Key]bool)
	// Refresh has objects of the table read again; it must not block. May be nil.
	Refresh func(keys ...object.Key)
	// Full ends a pod for which the node has no room: one more volume cannot be
	// attached. It must not block. May be nil.
	Full func(p *corev1.Pod, message string)
	// Label is the SELinux label that the files of a container with these options
	// have: see FileLabel. nil on a host without SELinux.
	Label  func(*corev1.SELinuxOptions) (string, error)
	Events events
	Now    func() time.Time
	Log    *slog.Logger
}

// Kind serves the volumes of CSI drivers. It is a plugin.Handler too. Make it with
// New, then Run it. Its methods may be called from any goroutine.
type Kind struct {
	*attacher
	targets lock.Keyed    // by path, held while it is published or unpublished
	fresh   chan struct{} // one token: something was published

	// Below the registry's lock.

	// staged are the shared parts that were staged by this process, attachments
	// what the controllers told of them. By StageID.
	staged      map[string]bool
	attachments map[string]map[string]string
	// published are by what Publish returned.
	published map[string]*published
}

// registry has the drivers.
type registry struct {
	o       Options
	cluster *csinode.Writer // nil without one
	names   lock.Keyed      // by driver, held while one registers
	known   known

	mu      sync.Mutex
	drivers map[string]*driver
}

// attacher waits for volumes to be attached, and keeps them so.
type attacher struct {
	*registry

	// Below the registry's lock.

	// using are attached volumes, on disk as StageIDs. counted says that those of an
	// earlier agent are among them.
	using   map[corev1.UniqueVolumeName]bool
	counted bool
	moved   chan struct{} // closed, and made anew, when the Node has changed
}

// published is a volume of which Publish has succeeded.
type published struct {
	request volume.Request
	// end interrupts what is done with the volume while it is in use.
	ctx context.Context
	end context.CancelFunc

	// Below the registry's lock.

	// size that the volume has on this node; zero before it is known.
	size resource.Quantity
	// stuck: the driver does not expand it while it is in use.
	stuck   bool
	usage   *Usage // what the driver told last
	tended  bool   // at least once
	tending bool
}

// New makes a Kind that knows no driver. It looks at nothing.
func New(o Options) *Kind {
	r := &registry{o: o, drivers: map[string]*driver{},
		known: known{asked: make(chan struct{}, 1), names: map[string]bool{}}}
	if o.Client != nil {
		r.cluster = csinode.New(csinode.Options{Client: o.Client, Node: o.Node, Events: o.Events, Log: o.Log})
	}
	return &Kind{
		attacher: &attacher{registry: r, using: map[corev1.UniqueVolumeName]bool{}, moved: make(chan struct{})},
		fresh:    make(chan struct{}, 1), staged: map[string]bool{},
		attachments: map[string]map[string]string{}, published: map[string]*published{},
	}
}

// Present makes the CSINode of a node without one: see csinode.Writer.
func (k *registry) Present(ctx context.Context, node *corev1.Node) error {
	return k.cluster.Ensure(ctx, node)
}

// dirName is the directory of these volumes in a pod's, as the kubelet spells it.
const dirName = "kubernetes.io~csi"

// Dir is the directory of these volumes in a pod's.
func (*Kind) Dir() string { return dirName }

// Serves says whether the volume is of this kind.
func (*Kind) Serves(v *corev1.Volume) bool { return v.CSI != nil }

// ServesPersistent says whether the volume is of this kind.
func (*Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.CSI != nil }

// TargetName is the PersistentVolume's name, by which the kubelet has it in the
// pod's directory.
func (*Kind) TargetName(r volume.Request) string { return claimName(r) }

// Features go by what Publish has learnt of the driver.
func (k *Kind) Features(r volume.Request) volume.Features {
	f := volume.Features{Block: r.Persistent != nil, Remote: true,
		ReadOnly: r.Persistent == nil && r.Volume.CSI.ReadOnly != nil && *r.Volume.CSI.ReadOnly}
	name := driverName(r)
	d, err := k.driver(name)
	object, known := k.known.get(name)
	if err != nil || !known && k.o.Client != nil {
		return f
	}
	f.FSGroup = groups(object, r) && !d.has(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	label, err := k.label(object, r)
	f.HostLabels = err == nil && label != "" // it is mounted with the label
	return f
}

func (k *registry) standsIn() bool { return k.o.StandsIn != nil && k.o.StandsIn() }

func driverName(r volume.Request) string {
	if r.Persistent != nil {
		return r.Persistent.Spec.CSI.Driver
	}
	return r.Volume.CSI.Driver
}

// label is the SELinux label to mount a volume with, "" for none.
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

// paths are where a volume's shared part is.
type paths struct {
	data    string // the directory of vol_data.json
	staging string
	publish string // the directory of a device's published files
}

func (k *registry) paths(id identity) paths {
	base := filepath.Join(k.o.Root, "plugins", "kubernetes.io", "csi")
	if id.Block != "" {
		base = filepath.Join(base, "volumeDevices")
		return paths{data: filepath.Join(base, id.Block, "data"), staging: filepath.Join(base, "staging", id.Block),
			publish: filepath.Join(base, "publish", id.Block)}
	}
	base = filepath.Join(base, id.Driver, hash(id.Handle))
	return paths{data: base, staging: filepath.Join(base, "globalmount")}
}

// remove takes away what is kept of a shared part that is not mounted any more.
func (p paths) remove(id identity) error {
	if id.Block == "" {
		return remove(p.data, filepath.Base(p.staging), dataFile, "."+dataFile)
	}
	return errors.Join(remove(p.staging), remove(p.publish), remove(p.data, dataFile, "."+dataFile),
		remove(filepath.Dir(p.data), "dev"))
}

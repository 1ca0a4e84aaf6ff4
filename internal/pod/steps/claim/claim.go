package claim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/record/event"
)

// Config of Claims. Fields are required unless they say otherwise.
type Config struct {
	// Root is the agent's directory.
	Root    string
	Objects *object.Table
	// Cluster has the claims and volumes of the API server's pods, which a control plane binds. nil: there is none.
	Cluster cluster
	// Labels has the labels of the Node in the cluster. nil: the labels of Node count.
	Labels nodeLabels
	// Synced is closed once Objects has everything.
	Synced <-chan struct{}
	// Origins says where claims come from, and whether a user removed the manifest of a missing claim.
	Origins origins
	// Retention is how long a volume is kept after its claim was deleted. 0: not at all.
	Retention time.Duration
	// Node has the name and labels that a volume's nodeAffinity is matched with.
	Node   *corev1.Node
	Pods   pods
	Events event.Sink
	Now    func() time.Time
	Log    *slog.Logger
}

type nodeLabels interface {
	Labels() map[string]string
}

type origins interface {
	Origin(object.Key) (object.Origin, bool)
	Fate(object.Origin) object.Fate
	// OriginsChanged receives when the answers of the other methods may have changed.
	OriginsChanged() <-chan struct{}
}

type pods interface {
	// ObjectsChanged wakes the pods that wait for these claims.
	ObjectsChanged(map[object.Key]bool)
}

// Claims are the claims of the node.
type Claims struct {
	cfg      Config
	wake     wake.Signal
	removals sync.WaitGroup // of volumes

	mu       sync.Mutex
	bindings map[types.NamespacedName]*Binding
	removing map[types.NamespacedName]bool
	failed   map[types.NamespacedName]time.Time // when the last removal of a volume failed
	deleting map[types.NamespacedName]*Binding  // by Delete; the value is the binding before that
	reported map[types.NamespacedName]string    // the last event of each unbound claim
	changed  map[object.Key]bool                // for the next pass
	users    users
	revision uint64
}

// New makes a Claims. It reads nothing before Load.
func New(c Config) *Claims {
	return &Claims{
		cfg: c, wake: wake.New(), bindings: map[types.NamespacedName]*Binding{},
		removing: map[types.NamespacedName]bool{}, failed: map[types.NamespacedName]time.Time{},
		reported: map[types.NamespacedName]string{},
		changed:  map[object.Key]bool{}, deleting: map[types.NamespacedName]*Binding{},
		users: users{},
	}
}

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

func (c *Claims) file() string { return filepath.Join(c.cfg.Root, "claims.json") }

func (c *Claims) dir(volume string) string { return filepath.Join(c.cfg.Root, "volumes", volume) }

// bindings is the content of the file.
type bindings []*Binding

// Check implements checkpoint.Checker.
func (all bindings) Check() error {
	for i, b := range all {
		if b == nil || b.Claim == nil || b.Volume == nil {
			return fmt.Errorf("binding %d has no claim or no volume", i)
		}
	}
	return nil
}

// Load reads the bindings of an earlier agent. After a *checkpoint.DamagedError the bindings are lost. The directories
// in <root>/volumes stay.
func (c *Claims) Load() error {
	list, err := checkpoint.Load[bindings](c.file(), format())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range list {
		c.bindings[nameOf(b.Claim)] = b
	}
	return err
}

// change sets the binding of a claim, or removes it if b is nil, after it has saved the bindings. It needs the lock.
func (c *Claims) change(name types.NamespacedName, b *Binding) error {
	previous, existed := c.bindings[name]
	if b == nil {
		delete(c.bindings, name)
	} else {
		c.bindings[name] = b
	}
	list := make([]*Binding, 0, len(c.bindings))
	for _, b := range c.bindings {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b *Binding) int { return object.KeyOf(a.Claim).Compare(object.KeyOf(b.Claim)) })
	if err := checkpoint.Save(c.file(), format(), list); err != nil {
		delete(c.bindings, name)
		if existed {
			c.bindings[name] = previous
		}
		return fmt.Errorf("save the bindings of claims: %w", err)
	}
	c.revision++
	return nil
}

// Bound returns the volume of a pod's claim and records the pod as its user. If the claim has no volume, Bound binds it
// or makes a volume. The error for something that must come first is an *object.Missing, *object.Unknown or
// *object.Lacking.
func (c *Claims) Bound(ctx context.Context, p *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume, error) {
	name := types.NamespacedName{Namespace: p.Namespace}
	if v.Ephemeral != nil {
		name.Name = p.Name + "-" + v.Name
	} else {
		name.Name = v.PersistentVolumeClaim.ClaimName
	}
	if c.cfg.Cluster != nil && ofCluster(p) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.boundByCluster(name, p, v)
	}
	select {
	case <-c.cfg.Synced:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.bind(name, p, v)
	if err != nil {
		return nil, err
	}
	if excludes(b, p.UID) {
		return nil,
			lacking(name, fmt.Errorf("the claim is ReadWriteOncePod, and the pod with the UID %s uses it", b.Users[0]))
	}
	if !slices.Contains(b.Users, p.UID) {
		next := *b
		next.Users, next.Released, next.Deleted = append(slices.Clone(b.Users), p.UID), nil, nil
		if err := c.change(name, &next); err != nil {
			return nil, err
		}
		b = &next
	}
	if b.Made {
		if err := c.makeDir(b); err != nil {
			return nil, err
		}
	}
	return b.Volume, nil
}

func lacking(name types.NamespacedName, err error) error {
	return &object.Lacking{Key: keyOf(name), Err: err}
}

func keyOf(name types.NamespacedName) object.Key {
	return object.Key{Kind: object.PersistentVolumeClaim, Namespace: name.Namespace, Name: name.Name}
}

// bind returns the binding of a claim that a pod uses. It needs the lock.
func (c *Claims) bind(name types.NamespacedName, p *corev1.Pod, v *corev1.Volume) (*Binding, error) {
	if c.removing[name] {
		return nil, lacking(name, errors.New("the previous volume of the claim is being removed"))
	}
	b := c.bindings[name]
	claim := c.local(name)

	if v.Ephemeral != nil {
		if claim != nil || b != nil && b.Owner != p.UID {
			return nil,
				lacking(name,
					fmt.Errorf("PVC %q was not created for pod %q (pod is not owner)", name, p.Namespace+"/"+p.Name))
		}
		claim = ephemeral(p, v)
	}
	switch {
	case b != nil && slices.Contains(b.Users, p.UID):
		return b, nil // claim and volume stay as long as the pod, even if their manifest is gone
	case claim == nil:
		return nil, &object.Missing{Key: keyOf(name)}
	case b != nil && b.Owner != "" && v.Ephemeral == nil:
		return nil, lacking(name, fmt.Errorf("an ephemeral volume of a pod has the claim's name"))
	case b != nil && !c.volumeExists(b):
		return nil, lacking(name, fmt.Errorf("the claim's volume %s is lost", b.Volume.Name))
	case b != nil:
		return b, nil
	}
	return c.bindNew(name, claim, p.UID, v.Ephemeral != nil)
}

// local returns the claim of a manifest, or nil. Claims of the cluster are not bound here.
func (c *Claims) local(name types.NamespacedName) *corev1.PersistentVolumeClaim {
	row, _ := c.cfg.Objects.Get(keyOf(name))
	claim, ok := row.(*corev1.PersistentVolumeClaim)
	if !ok || object.OfCluster(claim) {
		return nil
	}
	return claim
}

// bindNew binds an unbound claim. It makes a volume if none fits.
func (c *Claims) bindNew(name types.NamespacedName, claim *corev1.PersistentVolumeClaim, uid types.UID,
	owned bool) (*Binding, error) {
	volumes, owners := c.volumes()
	found := choose(claim, volumes, owners, c.cfg.Node)
	b := &Binding{Claim: claim, Volume: found.volume}
	if owned {
		b.Owner = uid
	} else {
		b.Origin = originOf(c.cfg.Origins, name)
	}
	switch {
	case found.missing != "":
		return nil, &object.Missing{Key: object.Key{Kind: object.PersistentVolume, Name: found.missing}}
	case found.why != "":
		c.report(claim, corev1.EventTypeWarning, found.reason, found.why)
		return nil, reason.Wrap(found.reason, lacking(name, errors.New(found.why)))
	case found.make:
		if err := safepath.Name(volumeName(claim)); err != nil {
			return nil, fmt.Errorf("make a volume for a claim with the UID %q: %w", claim.UID, err)
		}
		b.Made, b.Volume = true, directoryVolume(claim, c.dir(volumeName(claim)))
		b.Volume.CreationTimestamp = metav1.NewTime(c.cfg.Now()).Rfc3339Copy()
	}
	if owned {
		b.Claim.CreationTimestamp = metav1.NewTime(c.cfg.Now()).Rfc3339Copy()
	}
	if err := c.change(name, b); err != nil {
		return nil, err
	}
	delete(c.reported, name)
	if b.Made {
		c.report(claim, corev1.EventTypeNormal, reason.ProvisioningSucceeded,
			"Successfully provisioned volume "+b.Volume.Name)
	}
	return b, nil
}

// report writes an event for a claim, unless the last one had the same text.
func (c *Claims) report(claim *corev1.PersistentVolumeClaim, kind, why, text string) {
	if c.reported[nameOf(claim)] == text {
		return
	}
	c.reported[nameOf(claim)] = text
	c.cfg.Events.Event(corev1.ObjectReference{
		Kind: object.PersistentVolumeClaim, APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name,
		UID: claim.UID,
	}, kind, why, "%s", text)
}

// volumes returns the volumes of manifests, and the claim of each volume that has one.
func (c *Claims) volumes() (all []*corev1.PersistentVolume, owners map[string]types.NamespacedName) {
	for _, row := range c.cfg.Objects.Snapshot().All() {
		if v, ok := row.(*corev1.PersistentVolume); ok && !object.OfCluster(v) {
			all = append(all, v)
		}
	}
	owners = map[string]types.NamespacedName{}
	for name, b := range c.bindings {
		owners[b.Volume.Name] = name
	}
	return all, owners
}

// volumeExists reports whether a binding's volume exists: a volume of a manifest, or the directory of a released
// volume.
func (c *Claims) volumeExists(b *Binding) bool {
	if b.Made {
		if b.Released == nil {
			return true
		}
		_, err := os.Lstat(c.dir(b.Volume.Name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	_, exists := c.cfg.Objects.Get(object.Key{Kind: object.PersistentVolume, Name: b.Volume.Name})
	return exists
}

// makeDir makes the directory of a volume. Every process in the pod may write to it, because the user of the containers
// is not known. The mode of the directory above keeps out all other processes.
func (c *Claims) makeDir(b *Binding) error {
	dir := c.dir(b.Volume.Name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return fmt.Errorf("make volume %s: %w", b.Volume.Name, err)
	}
	err := os.Mkdir(dir, 0o750)
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Lstat(dir)
		// The agent was killed between mkdir and chmod: no pod has used the directory yet.
		if err == nil && info.IsDir() && info.Mode().Perm() == 0o750 && len(b.Users) <= 1 {
			return os.Chmod(dir, 0o777)
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("make volume %s: %w", b.Volume.Name, err)
	}
	return os.Chmod(dir, 0o777)
}

// Released removes a pod from the users of all claims.
func (c *Claims) Released(uid types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseOfCluster(uid)
	for name, b := range c.bindings {
		if !slices.Contains(b.Users, uid) {
			continue
		}
		next := *b
		next.Users = slices.DeleteFunc(slices.Clone(b.Users), func(u types.UID) bool { return u == uid })
		if err := c.change(name, &next); err != nil {
			return err
		}
		c.changed[keyOf(name)] = true
		c.wake.Wake()
	}
	return nil
}

// Users returns the pods that use claims.
func (c *Claims) Users() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []types.UID
	for _, b := range c.bindings {
		all = append(all, b.Users...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

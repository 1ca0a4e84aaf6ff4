package object

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/store"
)

// Kinds of objects, as in manifests.
const (
	ConfigMap             = "ConfigMap"
	Secret                = "Secret"
	PersistentVolume      = "PersistentVolume"
	PersistentVolumeClaim = "PersistentVolumeClaim"
	RuntimeClass          = "RuntimeClass"
)

// Kinds of objects that a cluster reports and that are not in the table.
const (
	Service               = "Service"
	ClusterTrustBundle    = "ClusterTrustBundle"
	PodCertificateRequest = "PodCertificateRequest"
)

// Every is the name in a key that stands for all objects of its kind and namespace.
const Every = "*"

// Bundles returns the key of all ClusterTrustBundles.
func Bundles() Key { return Key{Kind: ClusterTrustBundle, Name: Every} }

// CertificateRequests returns the key of all PodCertificateRequests of this node.
func CertificateRequests() Key { return Key{Kind: PodCertificateRequest, Name: Every} }

// CertificatesOf returns the key of the certificates that signers issue to a pod.
func CertificatesOf(p *corev1.Pod) Key {
	return Key{Kind: PodCertificateRequest, Namespace: p.Namespace, Name: "of " + string(p.UID)}
}

// Key identifies an object. Namespace is empty for kinds without namespaces.
type Key struct{ Kind, Namespace, Name string }

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys for messages.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Namespace, other.Namespace),
		cmp.Compare(k.Name, other.Name))
}

// Table holds the objects of this node. Each has the API type of its kind.
type Table = store.Table[Key, runtime.Object]

// Objects reads the table by kind.
type Objects struct {
	table    *Table
	received func(Key) bool
}

// New returns the objects of a complete table, as in an agent without a cluster.
func New(table *Table) *Objects { return &Objects{table: table} }

// Joined returns the objects of a table that a cluster fills too. An object that is not in the table is a *Missing if
// received reports that the cluster has answered for it, and an *Unknown otherwise.
func Joined(table *Table, received func(Key) bool) *Objects { return &Objects{table, received} }

// OfCluster reports whether the object comes from the API server and not from a manifest.
func OfCluster(v metav1.Object) bool { return v.GetResourceVersion() != "" }

// ConfigMap returns the object, or a *Missing or *Unknown.
func (o *Objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return get[*corev1.ConfigMap](o, Key{ConfigMap, namespace, name})
}

// Secret returns the object, or a *Missing or *Unknown.
func (o *Objects) Secret(namespace, name string) (*corev1.Secret, error) {
	return get[*corev1.Secret](o, Key{Secret, namespace, name})
}

// PersistentVolume returns the object, or a *Missing or *Unknown.
func (o *Objects) PersistentVolume(name string) (*corev1.PersistentVolume, error) {
	return get[*corev1.PersistentVolume](o, Key{PersistentVolume, "", name})
}

// PersistentVolumeClaim returns the object, or a *Missing or *Unknown.
func (o *Objects) PersistentVolumeClaim(namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return get[*corev1.PersistentVolumeClaim](o, Key{PersistentVolumeClaim, namespace, name})
}

// RuntimeClass returns the object, or a *Missing or *Unknown.
func (o *Objects) RuntimeClass(name string) (*nodev1.RuntimeClass, error) {
	return get[*nodev1.RuntimeClass](o, Key{RuntimeClass, "", name})
}

// Watch reports all present objects and then each change.
func (o *Objects) Watch() *store.Watcher[Key, runtime.Object] { return o.table.Watch() }

func get[T runtime.Object](o *Objects, key Key) (found T, err error) {
	row, ok := o.table.Get(key)
	if !ok && o.received != nil && !o.received(key) {
		return found, &Unknown{key}
	}
	if !ok {
		return found, &Missing{key}
	}
	found, ok = row.(T)
	if !ok {
		return found, fmt.Errorf("read %s: the table has a %T", key, row)
	}
	return found, nil
}

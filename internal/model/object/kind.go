package object

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Value is an object of any kind of this package.
type Value interface {
	runtime.Object
	metav1.Object
}

// Kind describes a kind of objects.
type Kind struct {
	// Name is the kind's name in manifests, Resource its name in paths of the API.
	Name, Resource string
	// Aliases are further names that commands accept.
	Aliases []string
	// APIVersion is the group and version, such as v1 or node.k8s.io/v1.
	APIVersion string
	// Namespaced says that objects of the kind belong to a namespace.
	Namespaced bool
	// New returns an empty object of the kind.
	New func() Value
}

// Key returns the key of an object of the kind.
func (k Kind) Key(namespace, name string) Key {
	if !k.Namespaced {
		namespace = ""
	}
	return Key{k.Name, namespace, name}
}

// GroupVersionKind returns the type that objects of the kind carry.
func (k Kind) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(k.APIVersion, k.Name)
}

// Kinds returns all kinds. Messages list them in this order.
func Kinds() []Kind {
	return []Kind{
		{Name: ConfigMap, Resource: "configmaps", Aliases: []string{"cm"}, APIVersion: "v1", Namespaced: true,
			New: func() Value { return &corev1.ConfigMap{} }},
		{Name: Secret, Resource: "secrets", APIVersion: "v1", Namespaced: true,
			New: func() Value { return &corev1.Secret{} }},
		{Name: PersistentVolumeClaim, Resource: "persistentvolumeclaims", Aliases: []string{"pvc"}, APIVersion: "v1",
			Namespaced: true,
			New:        func() Value { return &corev1.PersistentVolumeClaim{} }},
		{Name: PersistentVolume, Resource: "persistentvolumes", Aliases: []string{"pv"}, APIVersion: "v1",
			New: func() Value { return &corev1.PersistentVolume{} }},
		{Name: RuntimeClass, Resource: "runtimeclasses", APIVersion: "node.k8s.io/v1",
			New: func() Value { return &nodev1.RuntimeClass{} }},
	}
}

// KindNamed returns the kind with this name, such as ConfigMap.
func KindNamed(name string) (Kind, bool) {
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return all[i], true
}

// KeyOf returns the key of an object.
func KeyOf(v Value) Key {
	kind := ""
	switch v.(type) {
	case *corev1.ConfigMap:
		kind = ConfigMap
	case *corev1.Secret:
		kind = Secret
	case *corev1.PersistentVolume:
		kind = PersistentVolume
	case *corev1.PersistentVolumeClaim:
		kind = PersistentVolumeClaim
	case *nodev1.RuntimeClass:
		kind = RuntimeClass
	}
	return Key{kind, v.GetNamespace(), v.GetName()}
}

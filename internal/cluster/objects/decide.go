package objects

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// kubernetes is the service of the API server, which every pod is told of.
func kubernetes() object.Key {
	return object.Key{Kind: object.Service, Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
}

// Named are the objects of the table that a pod names, in order and each once.
func Named(p *corev1.Pod) []object.Key {
	var keys []object.Key
	name := func(kind, name string) {
		if name != "" {
			keys = append(keys, object.Key{Kind: kind, Namespace: p.Namespace, Name: name})
		}
	}
	for _, r := range p.Spec.ImagePullSecrets {
		name(object.Secret, r.Name)
	}
	for _, c := range pod.Containers(p) {
		namedByEnv(c.Container, name)
	}
	for i := range p.Spec.Volumes {
		namedByVolume(p, &p.Spec.Volumes[i], name)
	}
	if class := p.Spec.RuntimeClassName; class != nil && *class != "" {
		keys = append(keys, object.Key{Kind: object.RuntimeClass, Name: *class})
	}
	slices.SortFunc(keys, object.Key.Compare)
	return slices.Compact(keys)
}

func namedByEnv(c *corev1.Container, name func(kind, name string)) {
	for _, from := range c.EnvFrom {
		if r := from.ConfigMapRef; r != nil {
			name(object.ConfigMap, r.Name)
		}
		if r := from.SecretRef; r != nil {
			name(object.Secret, r.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			name(object.ConfigMap, r.Name)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			name(object.Secret, r.Name)
		}
	}
}

func namedByVolume(p *corev1.Pod, v *corev1.Volume, name func(kind, name string)) {
	switch {
	case v.ConfigMap != nil:
		name(object.ConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		name(object.Secret, v.Secret.SecretName)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		name(object.Secret, v.CSI.NodePublishSecretRef.Name)
	case v.PersistentVolumeClaim != nil:
		name(object.PersistentVolumeClaim, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		name(object.PersistentVolumeClaim, p.Name+"-"+v.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				name(object.ConfigMap, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				name(object.Secret, s.Secret.Name)
			}
		}
	}
}

// followedFor is all that is to be followed for a pod. What has ended for good
// needs nothing any more.
func followedFor(p *pod.Pod) []object.Key {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	var keys []object.Key
	for _, key := range Named(p.Pod) {
		if key.Kind == object.RuntimeClass || ofCluster(p) {
			keys = append(keys, key)
		}
	}
	keys = append(keys, serviceKeys(p.Pod)...)
	if Trusts(p.Pod) {
		keys = append(keys, object.Bundles())
	}
	return keys
}

// Trusts says that a pod has a volume of ClusterTrustBundles.
func Trusts(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
				return s.ClusterTrustBundle != nil
			})
	})
}

// serviceKeys are what is followed for the variables of a pod.
func serviceKeys(p *corev1.Pod) []object.Key {
	var keys []object.Key
	if links(p) {
		keys = append(keys, object.Key{Kind: object.Service, Namespace: p.Namespace, Name: object.Every})
	}
	if !links(p) || p.Namespace != kubernetes().Namespace {
		keys = append(keys, kubernetes())
	}
	return keys
}

// links: a pod that does not say is linked (the API's default).
func links(p *corev1.Pod) bool {
	return p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks
}

func ofCluster(p *pod.Pod) bool {
	return p.Source == pod.SourceAPI
}

// trim takes from an object what nobody on a node reads, in place: it may be
// large, and of a Secret there is one copy less in memory.
func trim(v object.Value) object.Value {
	v.SetManagedFields(nil)
	switch o := v.(type) {
	case *corev1.Service:
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion},
			Spec:       corev1.ServiceSpec{ClusterIP: o.Spec.ClusterIP, Ports: o.Spec.Ports},
		}
	case *corev1.Secret, *corev1.ConfigMap:
		delete(v.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	if kind, ok := object.KindNamed(object.KeyOf(v).Kind); ok {
		v.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind())
	}
	return v
}

// settled says that an object need not be looked at again until another pod names
// it: an immutable one, a claim with its volume, a volume with its claim.
func settled(v object.Value) bool {
	switch o := v.(type) {
	case *corev1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *corev1.Secret:
		return o.Immutable != nil && *o.Immutable
	case *corev1.PersistentVolumeClaim:
		return o.Spec.VolumeName != "" && o.Status.Phase == corev1.ClaimBound
	case *corev1.PersistentVolume:
		return o.Spec.ClaimRef != nil && o.Status.Phase == corev1.VolumeBound
	}
	return false
}

// leadsTo are the objects that are followed because of another: a claim's volume, and
// what a CSI driver needs to mount that.
func leadsTo(v object.Value) (keys []object.Key) {
	switch o := v.(type) {
	case *corev1.PersistentVolumeClaim:
		if settled(o) {
			keys = append(keys, object.Key{Kind: object.PersistentVolume, Name: o.Spec.VolumeName})
		}
	case *corev1.PersistentVolume:
		if o.Spec.CSI == nil {
			break
		}
		for _, ref := range []*corev1.SecretReference{o.Spec.CSI.NodeStageSecretRef, o.Spec.CSI.NodePublishSecretRef} {
			if ref != nil {
				keys = append(keys, object.Key{Kind: object.Secret, Namespace: ref.Namespace, Name: ref.Name})
			}
		}
		slices.SortFunc(keys, object.Key.Compare)
		keys = slices.Compact(keys)
	}
	return keys
}

// Delays between tries. A refused read has a shorter bound: what the authorizer
// does not know yet it knows in a moment.
const (
	retryFirst   = 100 * time.Millisecond
	retryRefused = 5 * time.Second
	retryMax     = 10 * time.Second
)

// delay before try number failures+1; failures is at least 1.
func delay(err error, failures int) time.Duration {
	most := retryMax
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		most = retryRefused
	}
	return min(retryFirst<<min(failures-1, 10), most)
}

// expired says that the API server no longer knows the state that a watch was to
// go on from.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

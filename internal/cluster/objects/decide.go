package objects

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/intree"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// kubernetes is the service of the API server, which every pod gets.
func kubernetes() object.Key {
	return object.Key{Kind: object.Service, Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
}

// Named returns the objects of the table that a pod names, sorted and each once.
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
	case v.AzureFile != nil:
		name(object.Secret, v.AzureFile.SecretName)
	case v.FlexVolume != nil && v.FlexVolume.SecretRef != nil:
		name(object.Secret, v.FlexVolume.SecretRef.Name)
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		name(object.Secret, v.ISCSI.SecretRef.Name)
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

// followedFor returns all objects to follow for a pod. A pod that has ended needs none. With own, a pod of a manifest
// gets the ConfigMaps and Secrets of the cluster. With certificates, a pod that projects one needs the requests.
func followedFor(p *pod.Pod, own, certificates bool) []object.Key {
	if pod.Ended(p.Status.Phase) {
		return nil
	}
	var keys []object.Key
	for _, key := range Named(p.Pod) {
		if key.Kind == object.RuntimeClass || ofCluster(p) || own && key.Kind != object.PersistentVolumeClaim {
			keys = append(keys, key)
		}
	}
	keys = append(keys, serviceKeys(p.Pod)...)
	if Trusts(p.Pod) {
		keys = append(keys, object.Bundles())
	}
	if certificates && ofCluster(p) &&
		projects(p.Pod, func(s corev1.VolumeProjection) bool { return s.PodCertificate != nil }) {
		keys = append(keys, object.CertificateRequests())
	}
	return keys
}

// Trusts reports whether a pod has a volume with ClusterTrustBundles.
func Trusts(p *corev1.Pod) bool {
	return projects(p, func(s corev1.VolumeProjection) bool { return s.ClusterTrustBundle != nil })
}

// projects reports whether a pod has a projected volume with such a source.
func projects(p *corev1.Pod, is func(corev1.VolumeProjection) bool) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, is)
	})
}

// serviceKeys returns the keys to follow for a pod's service variables.
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

// links reports whether a pod links to services, which is the API's default.
func links(p *corev1.Pod) bool {
	return p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks
}

func ofCluster(p *pod.Pod) bool {
	return p.Source == pod.SourceAPI
}

// trim removes the parts of an object that the node does not use. It works in place, because the object may be large,
// and to avoid another copy of a Secret.
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

// settled reports whether an object need not be read again until another pod names it: an immutable object, a bound
// claim, or a bound volume.
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

// leadsTo returns the objects to follow because of another one: the volume of a claim, and the Secrets of a volume.
func leadsTo(v object.Value) (keys []object.Key) {
	switch o := v.(type) {
	case *corev1.PersistentVolumeClaim:
		if settled(o) {
			keys = append(keys, object.Key{Kind: object.PersistentVolume, Name: o.Spec.VolumeName})
		}
	case *corev1.PersistentVolume:
		if migrated, ok, err := intree.Persistent(o); ok && err == nil {
			o = migrated
		}
		for _, ref := range secretsOf(o) {
			if ref == nil || ref.Name == "" {
				continue
			}
			key := object.Key{Kind: object.Secret, Namespace: ref.Namespace, Name: ref.Name}
			if key.Namespace == "" && o.Spec.ClaimRef != nil {
				key.Namespace = o.Spec.ClaimRef.Namespace // the Secret is in the namespace of the pod
			}
			keys = append(keys, key)
		}
		slices.SortFunc(keys, object.Key.Compare)
		keys = slices.Compact(keys)
	}
	return keys
}

// secretsOf returns references to the Secrets that a node needs to mount a volume. Some may be nil.
func secretsOf(v *corev1.PersistentVolume) []*corev1.SecretReference {
	switch s := v.Spec; {
	case s.CSI != nil:
		return []*corev1.SecretReference{s.CSI.NodeStageSecretRef, s.CSI.NodePublishSecretRef}
	case s.FlexVolume != nil:
		return []*corev1.SecretReference{s.FlexVolume.SecretRef}
	case s.ISCSI != nil:
		return []*corev1.SecretReference{s.ISCSI.SecretRef}
	}
	return nil
}

// Delays between tries. A refused read has a shorter maximum, because the authorizer soon learns of a new pod.
const (
	retryFirst   = 100 * time.Millisecond
	retryRefused = 5 * time.Second
	retryMax     = 10 * time.Second
)

// delay returns the time to the next try after a number of failures in a row, at least 1.
func delay(err error, failures int) time.Duration {
	limit := retryMax
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		limit = retryRefused
	}
	return retry.Delay(retryFirst, limit, failures)
}

// expired reports whether the API server has dropped the version that a watch wanted to continue from.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

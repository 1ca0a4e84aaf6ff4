package admission

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// ofManifest reports whether the pod comes from a manifest (on disk, from a URL, or applied) and not from an API
// server.
func ofManifest(p *corev1.Pod) bool {
	from := pod.Source(p.Annotations[pod.AnnotationConfigSource])
	return from == pod.SourceLocal || pod.Static(p)
}

// checkObjects keeps the cluster's objects from pods that the cluster does not know. Such a pod waits for its objects,
// because the manifests of a pod and of its objects may arrive in any order.
func checkObjects(in In) Answer {
	if in.Config.Standalone || !ofManifest(in.Pod) {
		return Answer{}
	}
	for _, key := range needed(in.Pod) {
		if in.Config.OwnReferences && key.Kind != object.PersistentVolumeClaim {
			continue
		}
		if in.Supplied == nil || !in.Supplied(key) {
			return Answer{Verdict: NotYet, Reason: ManifestObject, Message: (&object.Missing{Key: key}).Error() +
				" from a manifest: a pod of a manifest does not get the cluster's"}
		}
	}
	return Answer{}
}

// needed lists the objects that a pod names and cannot run without. It leaves out optional ones, pull secrets, and
// claims that are created for the pod.
func needed(p *corev1.Pod) (keys []object.Key) {
	need := func(kind, name string, optional *bool) {
		if optional == nil || !*optional {
			keys = append(keys, object.Key{Kind: kind, Namespace: p.Namespace, Name: name})
		}
	}
	for _, c := range pod.Containers(p) {
		neededByEnv(c.Container, need)
	}
	for _, v := range p.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			need(object.ConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional)
		case v.Secret != nil:
			need(object.Secret, v.Secret.SecretName, v.Secret.Optional)
		case v.PersistentVolumeClaim != nil:
			need(object.PersistentVolumeClaim, v.PersistentVolumeClaim.ClaimName, nil)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					need(object.ConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional)
				}
				if s.Secret != nil {
					need(object.Secret, s.Secret.Name, s.Secret.Optional)
				}
			}
		}
	}
	return keys
}

func neededByEnv(c *corev1.Container, need func(kind, name string, optional *bool)) {
	for _, from := range c.EnvFrom {
		if r := from.ConfigMapRef; r != nil {
			need(object.ConfigMap, r.Name, r.Optional)
		}
		if r := from.SecretRef; r != nil {
			need(object.Secret, r.Name, r.Optional)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			need(object.ConfigMap, r.Name, r.Optional)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			need(object.Secret, r.Name, r.Optional)
		}
	}
}

package manifest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-run/berth/internal/model/pod"
)

// checkEnv checks env and envFrom.
func checkEnv(c *check, k *corev1.Container, at *field.Path) {
	for i, e := range k.Env {
		at := at.Child("env").Index(i)
		c.text(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName)
		if e.ValueFrom == nil {
			continue
		}
		if e.Value != "" {
			c.invalid(at.Child("valueFrom"), e.Name, "cannot be set together with value")
		}
		checkValueFrom(c, e.ValueFrom, at.Child("valueFrom"))
	}
	for i, e := range k.EnvFrom {
		at := at.Child("envFrom").Index(i)
		c.optional(at.Child("prefix"), e.Prefix, validation.IsRelaxedEnvVarName)
		c.only(at, &e)
		if e.ConfigMapRef != nil {
			c.text(at.Child("configMapRef", "name"), e.ConfigMapRef.Name, validation.IsDNS1123Subdomain)
		}
		if e.SecretRef != nil {
			c.text(at.Child("secretRef", "name"), e.SecretRef.Name, validation.IsDNS1123Subdomain)
		}
	}
}

func checkValueFrom(c *check, v *corev1.EnvVarSource, at *field.Path) {
	c.only(at, v)
	if v.FieldRef != nil {
		checkFieldRef(c, v.FieldRef, at.Child("fieldRef"), "metadata.name", "metadata.namespace", "metadata.uid",
			"spec.nodeName",
			"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
	}
	if v.ResourceFieldRef != nil {
		checkResourceFieldRef(c, v.ResourceFieldRef, at.Child("resourceFieldRef"), false)
	}
	if r := v.ConfigMapKeyRef; r != nil {
		checkKeyRef(c, r.Name, r.Key, at.Child("configMapKeyRef"))
	}
	if r := v.SecretKeyRef; r != nil {
		checkKeyRef(c, r.Name, r.Key, at.Child("secretKeyRef"))
	}
	if r := v.FileKeyRef; r != nil {
		at := at.Child("fileKeyRef")
		c.text(at.Child("volumeName"), r.VolumeName, validation.IsDNS1123Label)
		checkFileVolume(c, r.VolumeName, at.Child("volumeName"))
		c.text(at.Child("key"), r.Key, validation.IsRelaxedEnvVarName)
		if r.Path == "" {
			c.add(field.Required(at.Child("path"), ""))
		}
		c.relative(at.Child("path"), r.Path)
	}
}

// checkFileVolume requires one of the pod's emptyDir volumes, because a container of the pod writes the file.
func checkFileVolume(c *check, name string, at *field.Path) {
	i := slices.IndexFunc(c.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	switch {
	case name == "": // the caller has reported it
	case i < 0:
		c.add(field.NotFound(at, name))
	case c.pod.Spec.Volumes[i].EmptyDir == nil:
		c.invalid(at, name, "referenced volume must be of type emptyDir")
	}
}

func checkKeyRef(c *check, name, key string, at *field.Path) {
	c.text(at.Child("name"), name, validation.IsDNS1123Subdomain)
	c.text(at.Child("key"), key, validation.IsConfigMapKey)
}

// checkFieldRef requires one of the allowed fields, or a label or annotation.
func checkFieldRef(c *check, r *corev1.ObjectFieldSelector, at *field.Path, allowed ...string) {
	oneOf(c, at.Child("apiVersion"), r.APIVersion, "v1")
	if r.FieldPath == "" {
		c.add(field.Required(at.Child("fieldPath"), ""))
		return
	}
	for _, keyed := range []string{"metadata.labels['", "metadata.annotations['"} {
		if key, ok := strings.CutPrefix(r.FieldPath, keyed); ok && strings.HasSuffix(key, "']") {
			c.rules(at.Child("fieldPath"), r.FieldPath, validation.IsQualifiedName(strings.TrimSuffix(key, "']")))
			return
		}
	}
	oneOf(c, at.Child("fieldPath"), r.FieldPath, allowed...)
}

// checkResourceFieldRef requires a request or limit of a container. In a volume the container must be named.
func checkResourceFieldRef(c *check, r *corev1.ResourceFieldSelector, at *field.Path, volume bool) {
	if volume && r.ContainerName == "" {
		c.add(field.Required(at.Child("containerName"), ""))
	}
	if r.ContainerName != "" {
		if _, ok := pod.FindContainer(c.pod, r.ContainerName); !ok {
			c.add(field.NotFound(at.Child("containerName"), r.ContainerName))
		}
	}
	for _, prefix := range []string{"limits.", "requests."} {
		if name, ok := strings.CutPrefix(r.Resource, prefix); ok &&
			strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
			return
		}
	}
	oneOf(c, at.Child("resource"), r.Resource, "limits.cpu", "limits.memory", "limits.ephemeral-storage",
		"requests.cpu", "requests.memory", "requests.ephemeral-storage")
}

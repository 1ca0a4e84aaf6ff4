package render

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/pod"
)

// variables is an environment in the order of first declaration. A variable
// declared again keeps its place and takes the later value.
type variables struct {
	names  []string
	values map[string]string
}

func (v *variables) set(name, value string) {
	if _, ok := v.values[name]; !ok {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

func (v *variables) lookup(name string) (string, bool) {
	value, ok := v.values[name]
	return value, ok
}

func (v *variables) list() []*runtimeapi.KeyValue {
	var out []*runtimeapi.KeyValue
	for _, name := range v.names {
		out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(v.values[name])})
	}
	return out
}

// environment resolves the container's variables. A reference $(NAME) sees what
// was declared before it.
func environment(in Input) (*variables, error) {
	env := &variables{values: map[string]string{}}
	for _, from := range in.Container.EnvFrom {
		switch {
		case from.ConfigMapRef != nil:
			return nil, fmt.Errorf("envFrom names ConfigMap %q: ConfigMaps are not served by this agent", from.ConfigMapRef.Name)
		case from.SecretRef != nil:
			return nil, fmt.Errorf("envFrom names Secret %q: Secrets are not served by this agent", from.SecretRef.Name)
		}
	}
	for _, e := range in.Container.Env {
		value := expand(e.Value, env.lookup)
		if e.Value == "" && e.ValueFrom != nil {
			var err error
			if value, err = valueFrom(in, e.ValueFrom); err != nil {
				return nil, fmt.Errorf("environment variable %q: %w", e.Name, err)
			}
		}
		env.set(e.Name, value)
	}
	return env, nil
}

func valueFrom(in Input, from *corev1.EnvVarSource) (string, error) {
	switch {
	case from.FieldRef != nil:
		return fieldValue(in, from.FieldRef)
	case from.ResourceFieldRef != nil:
		return pod.ResourceField(in.Pod, in.Container, from.ResourceFieldRef, in.Node.Allocatable)
	case from.ConfigMapKeyRef != nil:
		return "", fmt.Errorf("names ConfigMap %q: ConfigMaps are not served by this agent", from.ConfigMapKeyRef.Name)
	case from.SecretKeyRef != nil:
		return "", fmt.Errorf("names Secret %q: Secrets are not served by this agent", from.SecretKeyRef.Name)
	case from.FileKeyRef != nil:
		return "", fmt.Errorf("names file %q of volume %q: fileKeyRef is not supported by this agent", from.FileKeyRef.Path, from.FileKeyRef.VolumeName)
	}
	return "", fmt.Errorf("valueFrom names no source")
}

// fieldValue is the downward API for variables (metadata.* and the fields of
// spec and status that the API allows there).
func fieldValue(in Input, f *corev1.ObjectFieldSelector) (string, error) {
	if f.APIVersion != "" && f.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", f.APIVersion)
	}
	p := in.Pod
	switch f.FieldPath {
	case "spec.nodeName", "spec.host":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(in.Node.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(in.Node.HostIPs, ","), nil
	case "status.podIP":
		return first(in.podIPs()), nil
	case "status.podIPs":
		return strings.Join(in.podIPs(), ","), nil
	}
	if f.FieldPath == "metadata.labels" || f.FieldPath == "metadata.annotations" {
		return "", fmt.Errorf("unsupported fieldPath: %s", f.FieldPath) // of a file only
	}
	return pod.Field(p, f.FieldPath)
}

func (in Input) podIPs() []string {
	if pod.HostNetwork(in.Pod) {
		return in.Node.HostIPs
	}
	return in.PodIPs
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

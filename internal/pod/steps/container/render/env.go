package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// variables is an environment in the order of first declaration. A variable that is declared again keeps its place and
// takes the later value.
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

// environment resolves the container's variables as the kubelet does: first envFrom, then env, which wins. Variables of
// services come last, and only where neither sets the name. A reference $(NAME) sees the variables declared before it,
// and all service variables. Where the kubelet iterates over a map, this function uses the order of the spec, and
// sorted names within one source.
func environment(in Input) (*variables, error) {
	env := &variables{values: map[string]string{}}
	for _, from := range in.Container.EnvFrom {
		data, _, err := fromSource(in, from)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			env.set(key, data[key])
		}
	}
	lookup := func(name string) (string, bool) {
		if value, ok := env.lookup(name); ok {
			return value, true
		}
		value, ok := in.Sources.Services[name]
		return value, ok
	}
	for _, e := range in.Container.Env {
		value := pod.Expand(e.Value, lookup)
		if e.Value == "" && e.ValueFrom != nil {
			var err error
			value, err = valueFrom(in, e.ValueFrom)
			if errors.Is(err, errAbsent) {
				continue
			}
			if _, wait := object.Waits(err); err != nil && !wait {
				err = fmt.Errorf("environment variable %q: %w", e.Name, err)
			}
			if err != nil {
				return nil, err
			}
		}
		env.set(e.Name, value)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Sources.Services)) {
		if _, named := env.lookup(name); !named {
			env.set(name, in.Sources.Services[name])
		}
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
		r := from.ConfigMapKeyRef
		return keyOf(in, object.ConfigMap, r.Name, r.Key, r.Optional)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		return keyOf(in, object.Secret, r.Name, r.Key, r.Optional)
	case from.FileKeyRef != nil:
		return fileValue(in, from.FileKeyRef)
	}
	return "", fmt.Errorf("valueFrom names no source")
}

// fieldValue resolves a downward API field for a variable: metadata.*, and the fields of spec and status that the API
// allows there.
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
		return "", fmt.Errorf("unsupported fieldPath: %s", f.FieldPath) // allowed in volumes only
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

package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
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
		return resourceValue(in, from.ResourceFieldRef)
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
	if path, key, ok := subscript(f.FieldPath); ok {
		return keyValue(p, f.FieldPath, path, key)
	}
	switch f.FieldPath {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
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
	return "", fmt.Errorf("unsupported fieldPath: %s", f.FieldPath)
}

// subscript splits metadata.labels['key'].
func subscript(fieldPath string) (path, key string, ok bool) {
	s, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return "", "", false
	}
	return strings.Cut(s, "['")
}

func keyValue(p *corev1.Pod, fieldPath, path, key string) (string, error) {
	values, name := p.Labels, key
	switch path {
	case "metadata.labels":
	case "metadata.annotations":
		values, name = p.Annotations, strings.ToLower(key)
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", fieldPath)
	}
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", fieldPath, strings.Join(errs, "; "))
	}
	return values[key], nil
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

// resourceValue is a request or limit of a container in units of the divisor,
// rounded up. A container without a limit has what the pod or else the node can give.
func resourceValue(in Input, f *corev1.ResourceFieldSelector) (string, error) {
	c := in.Container
	if f.ContainerName != "" {
		var ok bool
		if c, ok = pod.FindContainer(in.Pod, f.ContainerName); !ok || c.Kind == pod.Ephemeral {
			return "", fmt.Errorf("container %s not found", f.ContainerName)
		}
	}
	list, resourceName, _ := strings.Cut(f.Resource, ".")
	name := corev1.ResourceName(resourceName)
	hugePages := strings.HasPrefix(resourceName, corev1.ResourceHugePagesPrefix)
	standard := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
	if !standard && !hugePages || list != "limits" && list != "requests" {
		return "", fmt.Errorf("unsupported container resource: %s", f.Resource)
	}
	value := c.Resources.Requests[name]
	if list == "limits" {
		value = c.Resources.Limits[name]
		if value.IsZero() && standard {
			value = ceiling(in, name)
		}
	}
	divisor := f.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == corev1.ResourceCPU {
		return divide(value.MilliValue(), divisor.MilliValue()), nil
	}
	return divide(value.Value(), divisor.Value()), nil
}

// ceiling is what a container without a limit can use at most.
func ceiling(in Input, name corev1.ResourceName) resource.Quantity {
	if r := in.Pod.Spec.Resources; r != nil {
		if q, ok := r.Limits[name]; ok && !q.IsZero() {
			return q
		}
	}
	return in.Node.Allocatable[name]
}

func divide(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}

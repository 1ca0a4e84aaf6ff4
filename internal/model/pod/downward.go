package pod

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Field returns the value of a field of the pod's metadata by its path in the downward API: metadata.name,
// metadata.labels['app'], metadata.labels.
func Field(p *corev1.Pod, fieldPath string) (string, error) {
	if path, key, ok := subscript(fieldPath); ok {
		return keyValue(p, fieldPath, path, key)
	}
	switch fieldPath {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.labels":
		return lines(p.Labels), nil
	case "metadata.annotations":
		return lines(p.Annotations), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", fieldPath)
}

// lines returns a sorted line for each key with its quoted value.
func lines(values map[string]string) string {
	var text []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text = append(text, key+"="+strconv.Quote(values[key]))
	}
	return strings.Join(text, "\n")
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

// ResourceField returns a request or limit of a container in units of the divisor, rounded up. The container is c
// unless f names another. A container without a limit has the limit of the pod (KEP-2837), or else the node's
// allocatable.
func ResourceField(p *corev1.Pod, c Container, f *corev1.ResourceFieldSelector,
	allocatable corev1.ResourceList) (string, error) {
	if f.ContainerName != "" {
		var ok bool
		if c, ok = FindContainer(p, f.ContainerName); !ok || c.Kind == Ephemeral {
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
			value = ceiling(p, name, allocatable)
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

// ceiling returns the most that a container without a limit can use.
func ceiling(p *corev1.Pod, name corev1.ResourceName, allocatable corev1.ResourceList) resource.Quantity {
	if r := p.Spec.Resources; r != nil {
		if q, ok := r.Limits[name]; ok && !q.IsZero() {
			return q
		}
	}
	return allocatable[name]
}

func divide(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}

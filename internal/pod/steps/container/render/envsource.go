package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// Sources are the sources of variables besides the pod. A source that is missing here does not exist.
type Sources struct {
	// Objects are ConfigMaps and Secrets of the pod's namespace.
	Objects map[object.Key]runtime.Object
	// Files are environment files of the pod's volumes (KEP-3721).
	Files map[EnvFile]string
	// Services are the variables with the addresses of services, made by the function Services. A standalone node has
	// none.
	Services map[string]string
}

// EnvFile is a file in a volume of the pod.
type EnvFile struct{ Volume, Path string }

// Needs returns the objects and files that a container's variables refer to.
func Needs(namespace string, c pod.Container) (objects []object.Key, files []EnvFile) {
	need := func(kind, name string) {
		if key := (object.Key{Kind: kind, Namespace: namespace, Name: name}); !slices.Contains(objects, key) {
			objects = append(objects, key)
		}
	}
	for _, from := range c.EnvFrom {
		if r := from.ConfigMapRef; r != nil {
			need(object.ConfigMap, r.Name)
		}
		if r := from.SecretRef; r != nil {
			need(object.Secret, r.Name)
		}
	}
	for _, e := range c.Env {
		if e.Value != "" || e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			need(object.ConfigMap, r.Name)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			need(object.Secret, r.Name)
		}
		if r := e.ValueFrom.FileKeyRef; r != nil {
			if f := (EnvFile{r.VolumeName, r.Path}); !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	return objects, files
}

// errAbsent is the error for a missing value that is optional.
var errAbsent = errors.New("optional and absent")

// values returns the data of a ConfigMap or Secret, or errAbsent if it is missing and optional.
func values(in Input, kind, name string, optional *bool) (map[string]string, error) {
	key := object.Key{Kind: kind, Namespace: in.Pod.Namespace, Name: name}
	switch o := in.Sources.Objects[key].(type) {
	case *corev1.ConfigMap:
		return o.Data, nil
	case *corev1.Secret:
		data := make(map[string]string, len(o.Data))
		for k, v := range o.Data {
			data[k] = string(v)
		}
		return data, nil
	}
	if optional != nil && *optional {
		return nil, errAbsent
	}
	return nil, &object.Missing{Key: key}
}

// keyOf returns the value of one key of a ConfigMap or Secret.
func keyOf(in Input, kind, name, key string, optional *bool) (string, error) {
	data, err := values(in, kind, name, optional)
	if err != nil {
		return "", err
	}
	value, ok := data[key]
	switch {
	case ok:
		return usable(in, kind, name, key, value)
	case optional != nil && *optional:
		return "", errAbsent
	}
	return "", lacks(in, kind, name, "couldn't find key %s in %s %s/%s", key, kind, in.Pod.Namespace, name)
}

// usable rejects a value that execve(2) cannot pass to a process.
func usable(in Input, kind, name, key, value string) (string, error) {
	if strings.ContainsRune(value, 0) {
		return "", lacks(in, kind, name, "key %s in %s %s/%s has a NUL byte, which no environment variable can hold",
			key, kind, in.Pod.Namespace, name)
	}
	return value, nil
}

func lacks(in Input, kind, name, format string, args ...any) error {
	return &object.Lacking{Key: object.Key{Kind: kind, Namespace: in.Pod.Namespace, Name: name},
		Err: fmt.Errorf(format, args...)}
}

// fromSource returns the variables of one envFrom entry by name, and the keys that cannot be the name of a variable.
func fromSource(in Input, from corev1.EnvFromSource) (env map[string]string, skipped []string, err error) {
	var kind, name string
	var optional *bool
	switch {
	case from.ConfigMapRef != nil:
		kind, name, optional = object.ConfigMap, from.ConfigMapRef.Name, from.ConfigMapRef.Optional
	case from.SecretRef != nil:
		kind, name, optional = object.Secret, from.SecretRef.Name, from.SecretRef.Optional
	default:
		return nil, nil, errors.New("envFrom names no source")
	}
	data, err := values(in, kind, name, optional)
	if errors.Is(err, errAbsent) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	env = make(map[string]string, len(data))
	for key, value := range data {
		variable := from.Prefix + key
		if len(validation.IsRelaxedEnvVarName(variable)) > 0 {
			skipped = append(skipped, variable)
			continue
		}
		if env[variable], err = usable(in, kind, name, key, value); err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(skipped)
	return env, skipped, nil
}

// Skipped returns a message for each envFrom entry with keys that were left out, because they cannot be the name of a
// variable.
func Skipped(in Input) (messages []string) {
	for _, from := range in.Container.EnvFrom {
		_, keys, err := fromSource(in, from)
		if err != nil || len(keys) == 0 {
			continue
		}
		source := "configMap " + in.Pod.Namespace + "/"
		if from.SecretRef != nil {
			source = "secret " + in.Pod.Namespace + "/" + from.SecretRef.Name
		} else {
			source += from.ConfigMapRef.Name
		}
		messages = append(messages,
			fmt.Sprintf(
				"Keys [%s] from the EnvFrom %s were skipped since they are considered invalid environment "+
					"variable names.",
				strings.Join(keys, ", "), source))
	}
	return messages
}

// fileValue returns the value of a key in an environment file. As in the kubelet, an empty value counts as missing.
func fileValue(in Input, r *corev1.FileKeySelector) (string, error) {
	optional := r.Optional != nil && *r.Optional
	text, there := in.Sources.Files[EnvFile{r.VolumeName, r.Path}]
	if !there {
		if optional {
			return "", errAbsent
		}
		return "", fmt.Errorf("file %q is not in volume %q", r.Path, r.VolumeName)
	}
	value, err := parseEnvFile(text, r.Key)
	switch {
	case err != nil:
		return "", fmt.Errorf("couldn't parse env file %q of volume %q: %w", r.Path, r.VolumeName, err)
	case value == "" && optional:
		return "", errAbsent
	case value == "":
		return "", fmt.Errorf("environment variable key %q not found in file %q of volume %q", r.Key, r.Path,
			r.VolumeName)
	case strings.ContainsRune(value, 0):
		return "", fmt.Errorf("key %q in file %q of volume %q has a NUL byte", r.Key, r.Path, r.VolumeName)
	}
	return value, nil
}

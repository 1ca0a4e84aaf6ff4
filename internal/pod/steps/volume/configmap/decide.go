package configmap

import (
	"maps"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Key is the ConfigMap of that name.
func Key(namespace, name string) object.Key {
	return object.Key{Kind: object.ConfigMap, Namespace: namespace, Name: name}
}

// Files are those of a ConfigMap. mode is that of files that have none of their
// own.
func Files(o payload.Objects, namespace string, r payload.Reference, mode int32) (payload.Files, error) {
	data := map[string][]byte{}
	switch m, err := o.ConfigMap(namespace, r.Name); {
	case r.IsOptional() && payload.IsMissing(err):
	case err != nil:
		return nil, err
	default:
		maps.Copy(data, m.BinaryData)
		for key, value := range m.Data {
			data[key] = []byte(value)
		}
	}
	return r.Files(Key(namespace, r.Name), data, mode, "configmap references non-existent config key: %s")
}

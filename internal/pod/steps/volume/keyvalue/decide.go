package keyvalue

import (
	"maps"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Key is the key of an object of this source.
func (s Source) Key(namespace, name string) object.Key {
	return object.Key{Kind: string(s), Namespace: namespace, Name: name}
}

// Files returns the files for an object. mode is for files whose item has none. An optional object that is missing has
// no files.
func (s Source) Files(o payload.Objects, namespace string, r payload.Reference, mode int32) (payload.Files, error) {
	data, err := s.data(o, namespace, r.Name)
	if err != nil && (!r.IsOptional() || !payload.IsMissing(err)) {
		return nil, err
	}
	missingKey := "configmap references non-existent config key: %s"
	if s == Secret {
		missingKey = "references non-existent secret key: %s"
	}
	return r.Files(s.Key(namespace, r.Name), data, mode, missingKey)
}

func (s Source) data(o payload.Objects, namespace, name string) (map[string][]byte, error) {
	if s == Secret {
		secret, err := o.Secret(namespace, name)
		if err != nil {
			return nil, err
		}
		return secret.Data, nil
	}
	m, err := o.ConfigMap(namespace, name)
	if err != nil {
		return nil, err
	}
	data := maps.Clone(m.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range m.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

package secret

import (
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Key is the Secret of that name.
func Key(namespace, name string) object.Key {
	return object.Key{Kind: object.Secret, Namespace: namespace, Name: name}
}

// Files are those of a Secret. mode is that of files that have none of their own.
func Files(o payload.Objects, namespace string, r payload.Reference, mode int32) (payload.Files, error) {
	var data map[string][]byte
	switch s, err := o.Secret(namespace, r.Name); {
	case r.IsOptional() && payload.IsMissing(err):
	case err != nil:
		return nil, err
	default:
		data = s.Data
	}
	return r.Files(Key(namespace, r.Name), data, mode, "references non-existent secret key: %s")
}

package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Source is the field runtimes of one configuration file.
type Source struct {
	File string
	// Value is decoded JSON, or nil for a file without the field.
	Value any
}

// ReadHandlers returns the runtime handlers of the files by name. A later file changes single fields of a handler, and
// removes it with null. Unlike an unknown field of the kubelet's, an unknown field here is an error.
func ReadHandlers(files []Source) (map[string]Handler, error) {
	all, origin := map[string]Handler{}, map[string]string{}
	for _, file := range files {
		text, err := json.Marshal(file.Value)
		if err != nil {
			return nil, err
		}
		var values map[string]json.RawMessage
		if err := json.Unmarshal(text, &values); err != nil {
			return nil, fmt.Errorf("%s: runtimes: %w", file.File, err)
		}
		for name, value := range values {
			if string(value) == "null" {
				delete(all, name)
				continue
			}
			h := all[name]
			d := json.NewDecoder(bytes.NewReader(value))
			d.DisallowUnknownFields()
			if err := d.Decode(&h); err != nil {
				return nil, fmt.Errorf("%s: runtimes.%s: %w", file.File, name, err)
			}
			all[name], origin[name] = h, file.File
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := all[name].Check(name); err != nil {
			errs = append(errs, fmt.Errorf("%s: runtimes.%s: %w", origin[name], name, err))
		}
	}
	return all, errors.Join(errs...)
}

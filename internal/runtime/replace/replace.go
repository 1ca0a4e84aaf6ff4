package replace

import (
	"fmt"

	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

// ByID returns the plugin of a type with an ID, which the plugin that is being initialised requires.
func ByID[T any](ic *plugin.InitContext, of plugin.Type, id string) (found T, err error) {
	got, err := ic.GetByID(of, id)
	found, ok := got.(T)
	if err == nil && !ok {
		err = fmt.Errorf("containerd's plugin %s %q has the unexpected type %T", of, id, got)
	}
	return found, err
}

// Plugin puts a part of ours in the place of the plugin of a type with an ID. replace gets the plugin, which it may
// use. before runs before that is initialised, unless it is nil. An error of either fails the initialisation, and so
// does a plugin that is no T.
//
// Call it before containerd starts: it registers all plugins anew. It does nothing if the plugin is not linked.
func Plugin[T any](of plugin.Type, id string, before func(*plugin.InitContext) error,
	replace func(*plugin.InitContext, T) (any, error)) {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for _, registration := range all {
		if registration.Type == of && registration.ID == id {
			stock := registration.InitFn
			registration.InitFn = func(ic *plugin.InitContext) (any, error) {
				if before != nil {
					if err := before(ic); err != nil {
						return nil, err
					}
				}
				instance, err := stock(ic)
				if err != nil {
					return nil, err
				}
				t, ok := instance.(T)
				if !ok {
					return nil, fmt.Errorf("containerd's plugin %s %q has the unexpected type %T", of, id, instance)
				}
				return replace(ic, t)
			}
		}
		registry.Register(&registration)
	}
}

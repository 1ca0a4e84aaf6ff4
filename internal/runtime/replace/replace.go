package replace

import (
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

// Init initialises a plugin, as its registration says.
type Init func(*plugin.InitContext) (any, error)

// Plugin gives the plugin of a type with an ID another initialiser. stock is the one that it had. Call it before
// containerd starts: it registers all plugins anew. It does nothing if the plugin is not linked.
func Plugin(of plugin.Type, id string, init func(ic *plugin.InitContext, stock Init) (any, error)) {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for _, registration := range all {
		if registration.Type == of && registration.ID == id {
			stock := registration.InitFn
			registration.InitFn = func(ic *plugin.InitContext) (any, error) { return init(ic, stock) }
		}
		registry.Register(&registration)
	}
}

package plugin

import (
	"context"
	"log/slog"
)

// The types of plugins that there are.
const (
	TypeCSI    = "CSIPlugin"
	TypeDRA    = "DRAPlugin"
	TypeDevice = "DevicePlugin"
)

// Plugin is what one says of itself.
type Plugin struct {
	// Name is a driver's name, e.g. csi.example.com, or a resource's.
	Name string
	Type string
	// Endpoint is the path of the socket that the plugin serves on. It tells two
	// plugins of one name apart.
	Endpoint string
	// Versions are those of the plugin's own API, e.g. 1.0.0 or v1.DRAPlugin.
	Versions []string
}

// Handler takes the plugins of one type. Different plugins call it side by side.
type Handler interface {
	// Register begins to use a plugin. The plugin is told of an error, and
	// Register is called again later. ctx ends when the plugin goes meanwhile.
	Register(ctx context.Context, p Plugin) error
	// Deregister ends what a successful Register has begun. Another plugin of that
	// name may have been registered since, with another Endpoint.
	Deregister(p Plugin)
}

// Options are what a Watcher needs.
type Options struct {
	// Dir is the directory of sockets, made if it is not there.
	Dir string
	// Handlers are by type.
	Handlers map[string]Handler
	Log      *slog.Logger
}

// Watcher follows the directory.
type Watcher struct{ opts Options }

// New makes a Watcher. It looks at nothing before Run.
func New(o Options) *Watcher { return &Watcher{opts: o} }

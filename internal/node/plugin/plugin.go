package plugin

import (
	"context"
	"log/slog"
	"sync"
)

// Types of plugins.
const (
	TypeCSI    = "CSIPlugin"
	TypeDRA    = "DRAPlugin"
	TypeDevice = "DevicePlugin"
)

// Plugin is the description that a plugin gives of itself.
type Plugin struct {
	// Name is the name of a driver, e.g. csi.example.com, or of a resource.
	Name string
	Type string
	// Endpoint is the path of the socket that the plugin serves on. It distinguishes two plugins of the same name.
	Endpoint string
	// Versions are the supported versions of the plugin's own API, e.g. 1.0.0 or v1.DRAPlugin.
	Versions []string
}

// Handler uses the plugins of one type. It is called concurrently for different plugins.
type Handler interface {
	// Register starts to use a plugin. After an error, the Watcher reports it to the plugin and calls Register again
	// later. ctx ends when the plugin's socket is removed.
	Register(ctx context.Context, p Plugin) error
	// Deregister ends the use of a registered plugin. Another plugin of the same name but with another Endpoint may
	// have been registered since.
	Deregister(p Plugin)
}

// Options of a Watcher.
type Options struct {
	// Dir is the directory of sockets. It is created if it does not exist.
	Dir string
	// Handlers are by plugin type.
	Handlers map[string]Handler
	Log      *slog.Logger
}

// Watcher follows the directory.
type Watcher struct {
	opts Options

	mu sync.Mutex
	// sockets are the followed sockets, and whether their plugins are registered.
	sockets map[string]bool
}

// New returns a Watcher that has found nothing yet.
func New(o Options) *Watcher { return &Watcher{opts: o, sockets: map[string]bool{}} }

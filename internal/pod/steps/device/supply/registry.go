package supply

import (
	"context"
	"fmt"
	"sync"

	found "github.com/berth-run/berth/internal/node/plugin"
)

// Registry is the plugin.Handler of device plugins that register through a socket in the plugins' directory, as CSI and
// DRA drivers do. Other device plugins call the registration socket of a Supply.
type Registry struct {
	supply *Supply

	mu      sync.Mutex
	plugins map[string]*Client // by endpoint
}

// Registry returns the handler of plugins of type plugin.TypeDevice. Call it once.
func (d *Supply) Registry() *Registry {
	return &Registry{supply: d, plugins: map[string]*Client{}}
}

// Register implements plugin.Handler. The plugin's name is the name of its resource.
func (r *Registry) Register(ctx context.Context, f found.Plugin) error {
	if err := checkResource(f.Name); err != nil {
		return err
	}
	if err := checkVersions(f.Versions...); err != nil {
		return err
	}
	if r.registered(f) {
		return fmt.Errorf("endpoint %s is already registered", f.Endpoint)
	}
	p, err := r.supply.adopt(ctx, f.Name, f.Endpoint)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plugins[f.Endpoint] = p
	return nil
}

func (r *Registry) registered(f found.Plugin) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plugins[f.Endpoint] != nil
}

// Deregister implements plugin.Handler. It marks the plugin's devices as lost.
func (r *Registry) Deregister(f found.Plugin) {
	r.mu.Lock()
	p := r.plugins[f.Endpoint]
	delete(r.plugins, f.Endpoint)
	r.mu.Unlock()
	if p != nil { // nil if two plugins with one endpoint registered at once and the other was deregistered first
		p.close()
	}
}

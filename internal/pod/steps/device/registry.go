package device

import (
	"context"
	"fmt"
	"sync"

	found "github.com/berth-run/berth/internal/node/plugin"
)

// Registry is the plugin.Handler of device plugins that register as drivers do, in
// the plugins' directory, and not at the socket of Devices.
type Registry struct {
	stock *stock

	mu    sync.Mutex
	taken map[string]*plugin // by endpoint
}

// Registry takes the plugins of type plugin.TypeDevice. Call it once.
func (d *Devices) Registry() *Registry {
	return &Registry{stock: d.stock, taken: map[string]*plugin{}}
}

// Register implements plugin.Handler. A plugin's name is that of its resource.
func (r *Registry) Register(ctx context.Context, f found.Plugin) error {
	if err := checkResource(f.Name); err != nil {
		return err
	}
	if err := checkVersions(f.Versions...); err != nil {
		return err
	}
	if r.has(f) {
		return fmt.Errorf("endpoint %s is already registered", f.Endpoint)
	}
	p, err := r.stock.take(ctx, f.Name, f.Endpoint)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[f.Endpoint] = p
	return nil
}

func (r *Registry) has(f found.Plugin) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken[f.Endpoint] != nil
}

// Deregister implements plugin.Handler: the plugin's devices are lost.
func (r *Registry) Deregister(f found.Plugin) {
	r.mu.Lock()
	p := r.taken[f.Endpoint]
	delete(r.taken, f.Endpoint)
	r.mu.Unlock()
	if p != nil { // otherwise two of one endpoint came at once, and it has ended with the other
		p.close()
	}
}

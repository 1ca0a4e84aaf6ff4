package device

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	found "github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/test/deviceplugin"
)

// watch runs a watcher of plugins for n until the test ends.
func (n *node) watch(dir string) {
	w := found.New(found.Options{Dir: dir, Handlers: map[string]found.Handler{found.TypeDevice: n.supply.Registry()},
		Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(n.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // until cancel
	n.t.Cleanup(func() { cancel(); running.Wait() })
}

// A plugin is registered through its socket. The next agent registers it again without a second Allocate.
func TestAPluginIsFound(t *testing.T) {
	root := short(t)
	n, dir := start(t, root), filepath.Join(root, "plugins_registry")
	n.watch(dir)
	p := n.plugin(deviceplugin.Options{Registry: dir, Resource: string(gpu), Devices: 2})
	want := device.Inventory{gpu: {{ID: "gpu-0", Healthy: true}, {ID: "gpu-1", Healthy: true}}}
	if diff := cmp.Diff(want, n.Inventory()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	pod := n.holds("u1", "gpu-1")
	n.created(pod, given("gpu-1"))
	if err := p.Await(t.Context(), "Registered true"); err != nil {
		t.Error(err)
	}
	n.stop()

	n = start(t, root)
	n.watch(dir)
	n.await(func() bool { return n.Plugins()[gpu].Served })
	n.created(pod, given("gpu-1"))
	if allocations := slices.DeleteFunc(p.Calls(), func(c string) bool {
		return c != "Allocate gpu-1"
	}); len(allocations) != 1 {
		t.Errorf("allocated the same devices again: %v", p.Calls())
	}
	p.Stop()
	n.await(func() bool { return !n.Plugins()[gpu].Served })
	if len(n.healthy()) > 0 {
		t.Errorf("healthy devices of a lost plugin: %v", n.healthy())
	}
}

func TestAPluginIsFoundAndRefused(t *testing.T) {
	n := start(t, short(t))
	r := n.supply.Registry()
	for want, f := range map[string]found.Plugin{
		`the ResourceName "gpu" is invalid: it must be DOMAIN/NAME, outside kubernetes.io`: {
			Name: "gpu", Versions: []string{"v1beta1"}},
		`requested API version "v1alpha, v1" is not supported: use one of ["v1beta1"]`: {
			Name: string(gpu), Versions: []string{"v1alpha", "v1"}},
		`the ResourceName "" is invalid: it must be DOMAIN/NAME, outside kubernetes.io`: {},
		`the ResourceName "kubernetes.io/gpu" is invalid: it must be DOMAIN/NAME, outside kubernetes.io`: {
			Name: "kubernetes.io/gpu"},
	} {
		if err := r.Register(t.Context(), f); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// A machine is fresh until Save was called or a plugin has registered.
func TestFresh(t *testing.T) {
	noted, served := short(t), short(t)
	fresh := func(root string) *node {
		t.Helper()
		n := start(t, root)
		if !n.records.Fresh() {
			t.Errorf("%s is not fresh", root)
		}
		return n
	}
	fresh(noted).stop()
	n := fresh(noted)
	n.supply.Save()
	n.stop()
	n = fresh(served)
	n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 1})
	n.stop()
	for _, root := range []string{noted, served} {
		if start(t, root).records.Fresh() {
			t.Errorf("%s is fresh", root)
		}
	}
}

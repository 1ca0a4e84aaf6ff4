package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/opencontainers/selinux/go-selinux"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/runtime/replace"
	"github.com/berth-run/berth/internal/runtime/sandbox/holder"
)

// ID is the controller's name in the configuration of runtime handlers ("sandboxer").
const ID = "berth"

// cri is the name of the CRI plugin's directories below the runtime's.
const cri = "io.containerd.grpc.v1.cri"

// New allocates a controller. Register makes it known to containerd, which then starts it.
func New(config Config) *Controller {
	c := &Controller{config: config, boxes: map[string]*box{}}
	own := func(dir string) string { return filepath.Join(dir, "sandboxes") }
	c.files = files{
		root: own(config.Root), state: own(config.State),
		criRoot: own(filepath.Join(config.Root, cri)), criState: own(filepath.Join(config.State, cri)),
	}
	c.records = checkpoint.NewDir[record](filepath.Join(config.State, "holders"), format)
	return c
}

// Register registers the controller as a plugin of containerd.
func (c *Controller) Register() {
	registry.Register(&plugin.Registration{
		Type:     plugins.SandboxControllerPlugin,
		ID:       ID,
		Requires: []plugin.Type{plugins.RuntimePluginV2},
		InitFn: func(ic *plugin.InitContext) (_ any, err error) {
			if c.shim, err = replace.ByID[Shim](ic, plugins.RuntimePluginV2, "task"); err != nil {
				return nil, fmt.Errorf("start sandbox controller: %w", err)
			}
			return c, c.load()
		},
	})
}

// load is the plugin's initialiser: it finds the sandboxes of an earlier agent.
func (c *Controller) load() (err error) {
	for _, dir := range []string{c.empty(), c.files.root, c.files.state} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("start sandbox controller: %w", err)
		}
	}
	if c.starter, err = holder.NewStarter(c.config.Holder, c.empty()); err != nil {
		return fmt.Errorf("start sandbox controller: %w", err)
	}
	if err := c.recover(); err != nil {
		return fmt.Errorf("start sandbox controller: %w", err)
	}
	return nil
}

// empty is the directory that holders see instead of the host's files.
func (c *Controller) empty() string { return filepath.Join(c.config.State, "empty") }

// recover reads the records of an earlier agent and finds its holders.
func (c *Controller) recover() error {
	records, err := c.records.LoadAll()
	damaged, other := checkpoint.Damaged(err)
	if other != nil {
		return other
	}
	if len(damaged) > 0 {
		c.config.Log.Error("records of sandboxes are damaged, the sandboxes will be replaced", "err",
			errors.Join(damaged...))
	}
	for id, r := range records {
		if err := c.adopt(id, r); err != nil {
			return fmt.Errorf("find sandbox %s: %w", id, err)
		}
	}
	return nil
}

// adopt adds the sandbox of an earlier agent.
func (c *Controller) adopt(id string, r record) error {
	b := &box{record: r, ended: make(chan struct{})}
	c.boxes[id] = b
	if r.Label != "" {
		// Pods may share a level: then an earlier sandbox has reserved it.
		if err := selinux.ReserveLabelV2(r.Label); err != nil && !errors.Is(err, selinux.ErrMCSAlreadyExists) {
			return fmt.Errorf("reserve SELinux label: %w", err)
		}
	}
	process, err := holder.Open(r.Holder)
	if errdefs.IsNotFound(err) {
		b.exited = time.Now()
		close(b.ended)
		return nil
	}
	if err != nil {
		return err
	}
	b.holder = process
	go c.follow(b)
	return nil
}

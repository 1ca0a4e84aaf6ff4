package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	core "github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"

	"github.com/berth-run/berth/internal/runtime/sandbox/holder"
)

// stopTimeout bounds the removal of a sandbox that could not start, and of one without a caller.
const stopTimeout = 10 * time.Second

// Start implements sandbox.Controller: it starts the holder. The node's shim starts meanwhile if there is none.
func (c *Controller) Start(ctx context.Context, id string) (core.ControllerInstance, error) {
	created, err := c.box(id)
	if err != nil {
		return core.ControllerInstance{}, err
	}
	c.shim.Prepare()
	started := &box{record: created.record, config: created.config, ended: make(chan struct{})}
	started.Created = time.Now()
	spec, err := typeurl.MarshalAny(started.spec())
	if err != nil {
		return core.ControllerInstance{}, fmt.Errorf("describe sandbox %s: %w", id, err)
	}
	if err := c.start(id, started); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return core.ControllerInstance{}, errors.Join(fmt.Errorf("start sandbox %s: %w", id, err), c.Shutdown(undo, id))
	}
	return core.ControllerInstance{
		SandboxID: id,
		Spec:      spec,
		Pid:       uint32(started.holder.PID),
		CreatedAt: started.Created,
		Address:   c.config.Shim.Address,
		Version:   c.config.Shim.Version,
		Labels: map[string]string{
			"oci_runtime_type": runtimeType, // the CRI plugin's metrics have it
			"selinux_label":    started.Label,
		},
	}, nil
}

// runtimeType is containerd's name for runtimes whose shim uses runc.
const runtimeType = "io.containerd.runc.v2"

func (c *Controller) start(id string, b *box) (err error) {
	if err := c.files.make(id, b.config); err != nil {
		return err
	}
	options := b.config.GetLinux().GetSecurityContext().GetSelinuxOptions()
	if b.Label, _, err = label.InitLabels(labels(options)); err != nil {
		return fmt.Errorf("choose SELinux label: %w", err)
	}
	return c.startHolder(id, b)
}

// startHolder starts the holder of a sandbox in its cgroup. The holder goes on without this process only once its
// record is on disk.
func (c *Controller) startHolder(id string, b *box) error {
	config, err := holderConfig(id, b)
	if err != nil {
		return err
	}
	group, err := b.cgroup(id)
	if err != nil {
		return err
	}
	if group != nil && !b.Systemd {
		if err := group.Apply(noProcess); err != nil {
			return err
		}
		paths := maps.Clone(group.GetPaths())
		delete(paths, "devices") // cgroupOf leaves it out
		config.Cgroups = slices.Collect(maps.Values(paths))
	}
	if b.holder, err = c.starter.Start(config); err != nil {
		return err
	}
	// The pod's first container moves soon. Any earlier, the wait would delay the cgroup above.
	c.config.Headstart.Expect()
	if err = b.holder.AdjustOOM(max(oomScore, c.config.OOMFloor)); err == nil && group != nil && b.Systemd {
		err = group.Apply(b.holder.PID) // systemd makes the cgroup of a process that exists
	}
	b.Holder = b.holder.Identity
	c.mu.Lock()
	c.boxes[id] = b
	if err == nil {
		err = c.records.SaveUnsynced(id, b.record)
	}
	c.mu.Unlock()
	go c.follow(b)
	if err != nil {
		b.holder.Kill()
		return fmt.Errorf("set up holder: %w", err)
	}
	return b.holder.Release()
}

// noProcess makes the cgroups library create a cgroup without moving a process there.
const noProcess = -1

// cgroup returns the cgroup of a sandbox, or nil if the pod names none.
func (b *box) cgroup(id string) (cgroups.Manager, error) {
	group, err := cgroupOf(b.CgroupParent, id, b.Systemd)
	if err != nil || group == nil {
		return nil, err
	}
	return manager.New(group)
}

func holderConfig(id string, b *box) (holder.Config, error) {
	config := holder.Config{
		ID: id, Namespaces: namespacesOf(b.config), NetworkPath: b.NetworkPath, Hostname: b.config.GetHostname(),
	}
	security := b.config.GetLinux().GetSecurityContext()
	if !security.GetPrivileged() {
		config.Label = b.Label
	}
	var err error
	if config.Namespaces.User {
		users := security.GetNamespaceOptions().GetUsernsOptions()
		if config.UIDs, err = mapping(users.GetUids()); err == nil {
			config.GIDs, err = mapping(users.GetGids())
		}
		if err != nil {
			return holder.Config{}, err
		}
	}
	config.Sysctls, err = holder.SysctlsOf(sysctlsOf(b.config, config.Namespaces), config.Namespaces)
	return config, err
}

// follow records the end of a holder.
func (c *Controller) follow(b *box) {
	<-b.holder.Ended()
	b.exited = time.Now()
	close(b.ended)
}

// Stop implements sandbox.Controller: it ends the holder, and with it each process in a PID namespace of the pod.
func (c *Controller) Stop(ctx context.Context, id string, _ ...core.StopOpt) error {
	b, err := c.box(id)
	if err != nil {
		return err
	}
	if b.holder != nil {
		b.holder.Kill()
		select {
		case <-b.ended:
		case <-ctx.Done():
			return fmt.Errorf("stop sandbox %s: %w", id, context.Cause(ctx))
		}
	}
	return c.files.unmount(id)
}

// Shutdown implements sandbox.Controller: it removes all that a sandbox has left. It also removes the files of a
// sandbox from before a reboot. The controller knows nothing else of such a sandbox.
func (c *Controller) Shutdown(ctx context.Context, id string) error {
	if err := c.Stop(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if err := c.removeCgroup(id); err != nil {
		return fmt.Errorf("remove cgroup of sandbox %s: %w", id, err)
	}
	if err := c.files.remove(id); err != nil {
		return fmt.Errorf("remove files of sandbox %s: %w", id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.boxes[id]; b != nil && b.Label != "" {
		selinux.ReleaseLabel(b.Label)
	}
	if err := c.records.DeleteUnsynced(id); err != nil {
		return err
	}
	delete(c.boxes, id)
	return nil
}

func (c *Controller) removeCgroup(id string) error {
	b, err := c.box(id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	group, err := b.cgroup(id)
	if err != nil || group == nil {
		return err
	}
	return group.Destroy()
}

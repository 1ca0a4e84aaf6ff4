package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-run/berth/internal/config/embedded"
	"github.com/berth-run/berth/internal/config/kubeletfile"
	"github.com/berth-run/berth/internal/node/kernel"
)

// Load reads the files that the flags name and makes the agent's configuration. The error joins all errors: each
// names the file, the field, its value and the allowed values. Warnings are returned with an error, too.
func Load(f Flags) (*Config, []kubeletfile.Warning, error) {
	layers, all, err := kubeletfile.Read(f.ConfigFile, f.ConfigDir)
	if err != nil {
		return nil, all, err
	}
	kc, origin, err := kubeletfile.Merge(layers)
	if err != nil {
		return nil, all, err
	}
	var own []embedded.Source
	for _, l := range layers {
		own = append(own, embedded.Source{File: l.Name, Value: l.Runtimes()})
	}
	if f.Embedded.Handlers, err = embedded.ReadHandlers(own); err != nil {
		return nil, all, err
	}
	missing, err := readMissing(layers)
	if err != nil {
		return nil, all, err
	}
	f.Absent.Manifests.Missing = cmp.Or(f.Absent.Manifests.Missing, missing)
	joined := f.Kubeconfig != ""
	all = append(all, kubeletfile.Warnings(kc, origin, joined, serves(kc, joined))...)
	for _, dir := range f.Paths() {
		if *dir, err = absolute(*dir); err != nil {
			return nil, all, fmt.Errorf("read flags: %w", err)
		}
	}
	if err := kubeletfile.Anchor(kc, origin); err != nil {
		return nil, all, fmt.Errorf("read paths of the configuration: %w", err)
	}
	h, err := readHost()
	if err == nil && kc.ProtectKernelDefaults {
		h.kernel, err = kernel.Wrong(os.DirFS(kernel.Root))
	}
	if err != nil {
		return nil, all, err
	}
	c, errs := build(f, kc, h)
	if len(errs) > 0 {
		return nil, all, located(errs, origin)
	}
	return c, all, nil
}

// Paths returns the flags with the path of a file or directory, without the paths of configuration files.
func (f *Flags) Paths() []*string {
	return []*string{
		&f.RootDir, &f.RunDir, &f.Socket, &f.Providers.Config, &f.Providers.BinDir, &f.Embedded.CNIConfDir,
		&f.Kubeconfig, &f.BootstrapKubeconfig, &f.CertDir, &f.Absent.Offline.KeyFile, &f.Lock.File,
	}
}

// absolute makes a path of the command line absolute. A relative path starts at the working directory.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

// located prefixes each error of a field with the file that sets the field.
func located(errs field.ErrorList, origin map[string]string) error {
	var all []error
	for _, e := range errs {
		name, _, _ := strings.Cut(e.Field, "[")
		if file := origin[name]; file != "" {
			all = append(all, fmt.Errorf("%s: %w", file, e))
			continue
		}
		all = append(all, e)
	}
	return errors.Join(all...)
}

// readHost reads the facts about the machine that build needs.
func readHost() (host, error) {
	var h host
	var err error
	if h.name, err = os.Hostname(); err != nil {
		return h, fmt.Errorf("read the host's name: %w", err)
	}
	h.runtime = os.Getenv("CONTAINER_RUNTIME_ENDPOINT")
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without swap has no such file
		return h, fmt.Errorf("detect swap: %w", err)
	}
	h.swap = bytes.Count(bytes.TrimSpace(swaps), []byte("\n")) > 0 // a header line, then one line for each
	var s unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &s); err != nil {
		return h, fmt.Errorf("detect the cgroup version: statfs /sys/fs/cgroup: %w", err)
	}
	h.cgroupV1 = s.Type != unix.CGROUP2_SUPER_MAGIC
	return h, nil
}

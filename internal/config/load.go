package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/node/kernel"
)

// Warning names a valid setting that has no effect or another effect than in the kubelet. The caller shows it to the
// user.
type Warning struct {
	// Origin is the file that contains the setting.
	Origin string
	// Field is the setting's path, such as logging.format. It is empty if the warning is about the whole file.
	Field string
	Text  string
}

func (w Warning) String() string {
	parts := make([]string, 0, 3)
	for _, part := range []string{w.Origin, w.Field, w.Text} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Load reads the files that the flags name and makes the agent's configuration. The error joins all errors: each
// names the file, the field, its value and the allowed values. Warnings are returned with an error, too.
func Load(f Flags) (*Config, []Warning, error) {
	layers, all, err := readLayers(f)
	if err != nil {
		return nil, all, err
	}
	kc, origin, err := mergeLayers(layers)
	if err != nil {
		return nil, all, err
	}
	all = append(all, warnings(f, kc, origin)...)
	for _, dir := range []*string{
		&f.RootDir, &f.RunDir, &f.Socket, &f.Providers.Config, &f.Providers.BinDir, &f.Embedded.CNIConfDir,
		&f.Kubeconfig, &f.BootstrapKubeconfig, &f.CertDir, &f.Offline.KeyFile, &f.Lock.File,
	} {
		if *dir, err = absolute(*dir); err != nil {
			return nil, all, fmt.Errorf("read flags: %w", err)
		}
	}
	if err := anchor(kc, origin); err != nil {
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

// absolute makes a path of the command line absolute. A relative path starts at the working directory.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

// anchor makes relative paths absolute. A relative path starts at the directory of the file that contains it, as for
// the kubelet.
func anchor(kc *v1beta1.KubeletConfiguration, origin map[string]string) error {
	paths := map[string]*string{
		"staticPodPath": &kc.StaticPodPath, "tlsCertFile": &kc.TLSCertFile, "tlsPrivateKeyFile": &kc.TLSPrivateKeyFile,
		"authentication.x509.clientCAFile": &kc.Authentication.X509.ClientCAFile,
	}
	if kc.ResolverConfig != nil {
		paths["resolvConf"] = kc.ResolverConfig
	}
	for field, path := range paths {
		if *path == "" || filepath.IsAbs(*path) {
			continue
		}
		dir, err := filepath.Abs(filepath.Dir(origin[field]))
		if err != nil {
			return err
		}
		*path = filepath.Join(dir, *path)
	}
	return nil
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

// readLayers reads the file, then the .conf files of the directory and its subdirectories, in the order of their
// paths.
func readLayers(f Flags) ([]layer, []Warning, error) {
	var layers []layer
	var skipped []Warning
	var errs []error
	read := func(path string) {
		l, err := readLayer(path)
		layers, errs = append(layers, l), append(errs, err)
	}
	if f.ConfigFile != "" {
		read(f.ConfigFile)
	}
	if f.ConfigDir != "" {
		if len(layers) > 0 && errs[0] == nil {
			layers = append(layers, beforeDropIns(layers[0].config))
		}
		errs = append(errs, filepath.WalkDir(f.ConfigDir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return fmt.Errorf("read configuration directory: %w", err)
			case e.IsDir():
			case filepath.Ext(path) == ".conf":
				read(path)
			default:
				skipped = append(skipped, Warning{Origin: path, Text: "is ignored: only .conf files are read"})
			}
			return nil
		}))
	}
	return layers, skipped, errors.Join(errs...)
}

func readLayer(path string) (layer, error) {
	file, err := os.Open(path)
	if err != nil {
		return layer{}, fmt.Errorf("read configuration: %w", err)
	}
	defer file.Close()
	text, err := document.ReadAll(file)
	if err != nil {
		return layer{}, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return parseLayer(path, text)
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
